"""``kvmend serve --engine trtllm``, never run with the engine: its server with our connector; other flags are its own.

Writes the engine's configuration, with ``kv_connector_config`` put in, to a temporary file and calls ``trtllm-serve``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sembase.command_line import exit_code_of, launcher_parser
from sembase.errors import ConfigurationError, install_command
from sembase.streams import write_out
from semblend.integration.core.missing_engine import EngineMissingError
from semblend.integration.settings import hand_on
from semblend.integration.trtllm.options import EXAMPLE, WHERE, parse_options

PROGRAM: Final = "kvmend serve --engine trtllm"
READ_VERSION: Final = "1.2.1"  # the newest stable version whose published interface we follow; none could be run
_INSTALL: Final = (
    f"on a machine with an NVIDIA GPU, install it in the same environment: pip install tensorrt_llm=={READ_VERSION} "
    f"from NVIDIA's package index, or run `{install_command('trtllm')}` in NVIDIA's container"
)
CONNECTOR: Final = {
    "connector_module": "semblend.integration.trtllm.connector",
    "connector_scheduler_class": "SemBlendConnectorScheduler",
    "connector_worker_class": "SemBlendConnectorWorker",
}
COMMAND_EXAMPLE: Final = f"{PROGRAM} Qwen/Qwen2.5-0.5B-Instruct --port 8000 --semblend-options '{EXAMPLE}'"
_KEY: Final = "kv_connector_config"
_FLAGS: Final = ("--extra_llm_api_options", "--config")  # the older and the newer name of one flag


def parse(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our arguments, and the rest for the engine."""
    parser = launcher_parser(
        PROGRAM,
        "Start TensorRT-LLM (trtllm-serve) with SemBlend's KV cache connector. Experimental and never run in the "
        "engine: searches earlier prompts and reports what it finds; loads nothing. Every other word is "
        "trtllm-serve's own and is passed on, such as the model and --port.",
        f"Needs TensorRT-LLM in the same environment (interface as published with {READ_VERSION}); SemBlend never "
        "installs or upgrades an engine.",
        COMMAND_EXAMPLE,
    )
    parser.add_argument(
        "--semblend-options",
        default="",
        metavar="JSON",
        help=f"options of the connector as a JSON object, such as '{EXAMPLE}' (default: all defaults)",
    )
    parser.add_argument("--semblend-off", action="store_true", help="start the stock server, for comparison")
    parser.add_argument(
        "--semblend-print-config",
        action="store_true",
        help="print what the engine's configuration file needs, for launchers of your own, and stop",
    )
    return parser.parse_known_args(list(words))


def take_config(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The engine configuration the user named, and the words without it."""
    rest: list[str] = []
    named: list[str] = []
    pending = iter(words)
    for word in pending:
        flag, equals, value = word.partition("=")
        if flag not in _FLAGS:
            rest.append(word)
        elif equals:
            named.append(value)
        else:
            named.append(next(pending, ""))
    if len(named) > 1 or "" in named:
        raise ConfigurationError(f"{' and '.join(_FLAGS)} are two names of one flag: pass one of them, with a file")
    return (named[0] if named else None), rest


def engine_config(own: Any) -> dict[str, Any]:
    """The user's configuration with our connector added. Naming another connector is an error."""
    if own is None:
        own = {}
    if not isinstance(own, dict):
        raise ConfigurationError("the engine's configuration file must be a mapping of options")
    if own.get(_KEY):
        raise ConfigurationError(f"{_KEY} is set by {PROGRAM}; leave it out of the file, or use --semblend-off")
    return {**own, _KEY: dict(CONNECTOR)}


def start(words: Sequence[str]) -> int:
    ours, rest = parse(words)
    parse_options(ours.semblend_options)  # fail here, not in a process of the engine
    if ours.semblend_print_config:
        write_out(json.dumps({_KEY: CONNECTOR}, indent=2) + "\n")
        return 0
    try:
        from tensorrt_llm.commands.serve import main as serve  # noqa: PLC0415 - --help works without the engine
    except ImportError as error:
        raise EngineMissingError("TensorRT-LLM", "tensorrt_llm", str(error), _INSTALL) from None
    if ours.semblend_off:
        return _serve(serve, rest)
    named, rest = take_config(rest)
    config = engine_config(_read(named) if named is not None else None)
    if ours.semblend_options:
        hand_on(WHERE, ours.semblend_options)
    with tempfile.TemporaryDirectory(prefix="semblend-trtllm-") as folder:
        file = Path(folder) / "engine.yaml"
        file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        return _serve(serve, [*rest, _FLAGS[0], str(file)])


def _read(name: str) -> Any:
    import yaml  # noqa: PLC0415 - the engine brings it

    try:
        return yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{name}: {error}") from None


def _serve(serve: Any, words: list[str]) -> int:
    """The engine's command parses its own arguments and ends by exiting the interpreter."""
    sys.argv = ["trtllm-serve", *words]
    serve()
    return 0


def main(words: Sequence[str] | None = None) -> int:
    return exit_code_of(PROGRAM, lambda: start(sys.argv[1:] if words is None else words), "start it again")


if __name__ == "__main__":
    raise SystemExit(main())
