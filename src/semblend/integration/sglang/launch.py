"""``kvmend serve --engine sglang MODEL``: SGLang's server with our radix backend; other flags are SGLang's own.

Verifies before the start what the engine would only log: that the plug-in was found and the backend registered.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from sembase.command_line import exit_code_of, launcher_parser, take_value
from sembase.errors import DISTRIBUTION, ConfigurationError
from sembase.free_port import require_free_port
from sembase.registry import load_target
from sembase.streams import write_err
from semblend.integration.settings import hand_on
from semblend.integration.sglang.options import WHERE, parse_options
from semblend.integration.sglang.plugin import BACKEND, engine_missing, without_registry
from semblend.integration.sglang.support import VERIFIED_VERSION

PROGRAM: Final = "kvmend serve --engine sglang"
EXAMPLE: Final = (
    f"{PROGRAM} Qwen/Qwen2.5-0.5B-Instruct --device cpu --attention-backend torch_native "
    """--page-size 16 --port 30000 --semblend-options '{"events": "events.jsonl"}'"""
)
_FLAG: Final = "--radix-cache-backend"
_MODEL_FLAG: Final = "--model-path"
_HOST: Final = "127.0.0.1"  # SGLang's defaults
_PORT: Final = "30000"


def parse(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our arguments, and the rest for the engine."""
    parser = launcher_parser(
        PROGRAM,
        "Start SGLang with SemBlend's radix cache. Every other flag is SGLang's own and is passed on, such as "
        "--model-path, --port, --page-size.",
        f"Needs SGLang in the same environment (verified with {VERIFIED_VERSION}); SemBlend never installs or upgrades "
        "an engine.",
        EXAMPLE,
    )
    parser.add_argument(
        "--semblend-options",
        default="",
        metavar="JSON",
        help='options of the cache as a JSON object, such as \'{"events": "events.jsonl"}\' (default: all defaults)',
    )
    parser.add_argument("--semblend-off", action="store_true", help="start the stock server, for comparison")
    return parser.parse_known_args(list(words))


def engine_words(ours: argparse.Namespace, rest: Sequence[str]) -> list[str]:
    """The engine's command line: a model without its flag gets one. Naming another radix backend is an error."""
    rest = [_MODEL_FLAG, *rest] if rest and not rest[0].startswith("-") else rest
    named = [word for word in rest if word == _FLAG or word.startswith(f"{_FLAG}=")]
    if named and not ours.semblend_off:
        raise ConfigurationError(f"{_FLAG} is set by {PROGRAM}; leave it out, or use --semblend-off")
    return list(rest) if ours.semblend_off else [*rest, _FLAG, BACKEND]


def cpu_flags(rest: Sequence[str], has_accelerator: bool) -> list[str]:
    """What a server on a CPU needs and the command line does not name; empty on other devices."""
    named = {word.partition("=")[0] for word in rest}
    device = take_value(list(rest), "--device")
    on_cpu = not has_accelerator if device is None else device == "cpu"
    wanted = (("--device", "cpu"), ("--attention-backend", "torch_native")) if on_cpu else ()
    return [word for flag, value in wanted if flag not in named for word in (flag, value)]


def start(words: Sequence[str]) -> int:
    ours, rest = parse(words)
    parse_options(ours.semblend_options)  # fail here, not in a process of the engine
    command = engine_words(ours, rest)
    named = list(command)
    host, port = take_value(named, "--host") or _HOST, take_value(named, "--port") or _PORT
    if port.isdecimal():  # another is left to the engine's parser
        require_free_port(host, int(port))
    try:
        from sglang.launch_server import run_server  # noqa: PLC0415 - --help works without the engine
        from sglang.srt.plugins import load_plugins  # noqa: PLC0415
        from sglang.srt.server_args import prepare_server_args  # noqa: PLC0415
        from sglang.srt.utils import kill_process_tree  # noqa: PLC0415
    except ImportError as error:
        raise engine_missing(error) from None
    if not ours.semblend_off and (added := cpu_flags(command, _has_accelerator())):
        command += added
        write_err(f"{PROGRAM}: added for a server on the CPU: {' '.join(added)}\n")
    if ours.semblend_options:
        hand_on(WHERE, ours.semblend_options)
    load_plugins()
    if not ours.semblend_off:
        _verify_registration()
    server_args = prepare_server_args(command)
    try:
        run_server(server_args)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)
    return 0


def _has_accelerator() -> bool:
    return bool(load_target("torch:accelerator").is_available())


def _verify_registration() -> None:
    """The engine's processes find us through our entry point only; a registration made here would not reach them."""
    try:
        from sglang.srt.mem_cache.registry import registered_radix_cache_backends  # noqa: PLC0415
    except ImportError as error:
        raise without_registry(error) from None
    if BACKEND not in registered_radix_cache_backends():
        raise ConfigurationError(
            f"the engine did not load SemBlend's plug-in '{BACKEND}' (entry points 'sglang.srt.plugins'); reinstall "
            f"{DISTRIBUTION} in this environment, or add '{BACKEND}' to SGLANG_PLUGINS if that is set"
        )


def main(words: Sequence[str] | None = None) -> int:
    return exit_code_of(PROGRAM, lambda: start(sys.argv[1:] if words is None else words), "start it again")


if __name__ == "__main__":
    raise SystemExit(main())
