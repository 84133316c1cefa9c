"""``kvmend serve --engine vllm MODEL ...``: vLLM's server with our connector; every flag it does not know is vLLM's.

Checks first, as ``kvmend doctor`` does, says what will be refused, sizes the memory by this machine and keeps, on a
CPU, the compute threads of the stock server.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final

from sembase.command_line import ExitCode, exit_code_of, launcher_parser, take_value
from sembase.errors import ConfigurationError
from sembase.free_port import require_free_port
from sembase.streams import write_err
from semblend.cli.doctor import check_command, fill_in
from semblend.doctor import cpu_threads
from semblend.doctor.installation import how_to_install, read_installation
from semblend.doctor.model_facts import require_model
from semblend.doctor.report import SENTENCES
from semblend.doctor.serve_command import (
    CHECK_FLAG,
    OFF_FLAG,
    OPTIONS_FLAG,
    VLLM,
    ServeCommand,
    read_command,
    read_options,
    transfer_of,
    with_semblend,
)
from semblend.doctor.verdict import Checked, State
from semblend.integration.core.missing_engine import EngineMissingError
from semblend.integration.settings import hand_on
from semblend.integration.vllm.flags import TRANSFER_FLAG
from semblend.integration.vllm.options import parse_options
from semblend.integration.vllm.support import VERIFIED_VERSION

PROGRAM: Final = "kvmend serve --engine vllm"
_PORT: Final = "8000"  # vLLM's default
EXAMPLE: Final = f"""{PROGRAM} Qwen/Qwen2.5-0.5B-Instruct --port 8000 --semblend-options '{{"capture": "all"}}'"""


def parse(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our arguments, and the rest for the engine."""
    parser = launcher_parser(
        PROGRAM,
        "Start vLLM with SemBlend's connector: fills in its flags, checks as `kvmend doctor` does and says what will "
        "be refused. Every other word is that of `vllm serve` and is passed on.",
        f"Needs vLLM in the same environment (verified with {VERIFIED_VERSION}x); SemBlend never installs or upgrades "
        "an engine.",
        EXAMPLE,
    )
    parser.add_argument(
        OPTIONS_FLAG,
        default="{}",
        metavar="JSON",
        help="options of the connector as a JSON object; host_bytes defaults to a quarter of the free memory, divided "
        "between the workers; on a CPU the engine's memory is set to fit, too",
    )
    parser.add_argument(OFF_FLAG, action="store_true", help="start the stock server, for comparison")
    parser.add_argument(CHECK_FLAG, action="store_true", help="check and say what would be started, and stop")
    return parser.parse_known_args(list(words))


def start(words: Sequence[str], run: Callable[[Sequence[str]], int] | None = None) -> int:
    """``run`` starts the server; by default it replaces this process."""
    ours, rest = parse(words)
    command = read_command(VLLM, None, ["vllm", "serve", *(rest[1:] if rest[:1] == ["serve"] else rest)])
    if command is None:
        raise ConfigurationError(f"name a model: {PROGRAM} MODEL")
    require_model(command.model)
    if not ours.semblend_check:
        _require_free_port(command.flags)
    if ours.semblend_off:
        return (run or _replace_process)(server_words(command))
    if transfer_of(command):
        raise ConfigurationError(f"{TRANSFER_FLAG} is set by {PROGRAM}; leave it out, or use {OFF_FLAG}")
    options = read_options(ours.semblend_options)
    parse_options(options)  # a wrong one stops here, not in a process of the engine
    if read_installation().engine(VLLM) is None:
        raise EngineMissingError("vLLM", "vllm", "it is not installed", how_to_install(VLLM))
    with contextlib.redirect_stdout(sys.stderr):  # engines log to stdout
        command = fill_in(with_semblend(command, options))
        checked = check_command(command, True, False)
    lines = messages(checked)
    if checked.verdict.state is not State.START_FAILS:
        verb = "would start" if ours.semblend_check else "starting"
        settings = (f"{name}={value} " for name, value in checked.environment.items())
        lines.append(f"{verb}: {''.join(settings)}{shlex.join(server_words(command))}")
    write_err("".join(f"{PROGRAM}: {line}\n" for line in lines))
    if checked.verdict.state is State.START_FAILS:
        return int(ExitCode.USAGE)
    if ours.semblend_check:
        return int(ExitCode.OK if checked.verdict.state is State.READY else ExitCode.GATE_FAILED)
    for name, value in checked.environment.items():
        hand_on(name, value)
    return (run or _replace_process)(server_words(command))


def messages(checked: Checked) -> list[str]:
    """What a person reads before the engine's own log."""
    verdict = checked.verdict
    lines = [" ".join(filter(None, (SENTENCES[verdict.state], verdict.reason))), *verdict.notes]
    if verdict.state is State.START_FAILS:
        return lines
    shown = ("memory", "donor memory", cpu_threads.FACT)
    return lines + [f"{name}: {checked.facts[name]}" for name in shown if name in checked.facts]


def _require_free_port(flags: Sequence[str]) -> None:
    """Before anything is imported; what a file of ``--config`` names, or is no number, is left to the engine."""
    rest = list(flags)
    host, port, elsewhere = (take_value(rest, flag) for flag in ("--host", "--port", "--config"))
    port = port or (_PORT if elsewhere is None else "")
    if port.isdecimal() and take_value(rest, "--uds") is None and "--headless" not in rest:
        require_free_port(host, int(port))


def server_words(command: ServeCommand) -> list[str]:
    """In this interpreter, which need not be the one of the ``vllm`` on the PATH.

    ``vllm serve`` looks up the version of the distribution ``vllm``. The CPU build is published under another name, and
    ``vllm serve`` ends with an error there; the module of the API server does not ask.
    """
    if _is_distributed_as("vllm"):
        return [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", command.model, *command.flags]
    return [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", command.model, *command.flags]


def _is_distributed_as(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _replace_process(words: Sequence[str]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(words[0], list(words))


def main(words: Sequence[str] | None = None) -> int:
    return exit_code_of(PROGRAM, lambda: start(sys.argv[1:] if words is None else words), "start it again")


if __name__ == "__main__":
    raise SystemExit(main())
