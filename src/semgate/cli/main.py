"""The entry point: runs a command; an error becomes one line with a remedy and an exit code."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from sembase.command_line import CommandParser, add_commands, run_program
from semblend import __version__
from semgate.cli import explain, picker, proxy, router

PROGRAM: Final = "semgate"
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
_CODES: Final = (
    "exit codes: 0 ok (also a server stopped by SIGTERM or Ctrl-C), 2 wrong usage or setting, 3 environment (missing "
    "package, disk, port), 130 interrupted by Ctrl-C before it served"
)
COMMAND_MODULES: Final = (router, picker, proxy, explain)
_INTERRUPTED: Final = "interrupted before serving started"


def parser(program: str = PROGRAM, names: Mapping[str, str] = _NO_NAMES) -> argparse.ArgumentParser:
    root = CommandParser(
        prog=program,
        description="A proxy that records traffic without its text, a KV-aware router, and an endpoint picker for "
        "Envoy that places as the router does, for vLLM, SGLang or any server with an OpenAI-compatible API.",
        epilog=_CODES,
    )
    root.add_argument("--version", action="version", version=f"{program} {__version__}")
    add_commands(root, COMMAND_MODULES, _CODES, names)
    return root


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM, names: Mapping[str, str] = _NO_NAMES) -> int:
    """``names``: commands that ``program`` calls otherwise."""
    return run_program(program, lambda: parser(program, names), arguments, _INTERRUPTED)
