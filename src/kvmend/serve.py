"""``kvmend serve --engine ENGINE MODEL ...``: hands over to the launcher of the engine, with every other word."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from sembase.command_line import HELP_COLUMNS, CommandParser, ExitCode, exit_code_of, take_value
from sembase.errors import ConfigurationError
from sembase.registry import load_target
from sembase.streams import write_err, write_out

# Engine to the package it is imported as, and its launcher.
ENGINES: Final = {
    "vllm": ("vllm", "semblend.cli.launch_vllm:main"),
    "sglang": ("sglang", "semblend.integration.sglang.launch:main"),
    "trtllm": ("tensorrt_llm", "semblend.integration.trtllm.launch:main"),
}
_FLAG: Final = "--engine"
_DESCRIPTION: Final = (
    "Start an inference server with KV reuse: fills in the engine's flags, checks the installation first and says what "
    "will be refused. Without --engine, the engine that is installed here."
)


def parser(program: str) -> argparse.ArgumentParser:
    """For the help: ``main`` takes the engine, the rest is parsed by the launcher."""
    return CommandParser(
        prog=program,
        usage=f"{program} [{_FLAG} {{{','.join(ENGINES)}}}] MODEL [the engine's own flags]",
        description=textwrap.fill(_DESCRIPTION, HELP_COLUMNS),
        epilog=f"examples:\n  {program} --engine vllm Qwen/Qwen2.5-0.5B-Instruct --port 8000\n"
        f"  {program} --engine vllm --help        (our options for this engine)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def main(words: Sequence[str], program: str = "kvmend serve") -> int:
    rest = list(words)
    try:
        engine = take_value(rest, _FLAG)
    except ConfigurationError as error:
        parser(program).error(str(error))
    if not rest:
        write_err(f"{parser(program).format_help()}\n{program}: error: name a model\n")
        return int(ExitCode.USAGE)
    if engine is None and {"-h", "--help"} & set(rest):
        write_out(parser(program).format_help())
        return 0
    if engine is not None and engine not in ENGINES:
        parser(program).error(f"unknown engine '{engine}'; known: {', '.join(ENGINES)}")
    return exit_code_of(program, lambda: _launch(engine or only_installed(), rest), "start it again")


def only_installed() -> str:
    found = [engine for engine, (package, _) in ENGINES.items() if find_spec(package) is not None]
    if len(found) != 1:
        seen = f"{' and '.join(found)} are" if found else "no engine is"
        raise ConfigurationError(f"{seen} installed here; name one with {_FLAG} {'|'.join(ENGINES)}")
    return found[0]


def _launch(engine: str, words: Sequence[str]) -> int:
    return int(load_target(ENGINES[engine][1])(words))
