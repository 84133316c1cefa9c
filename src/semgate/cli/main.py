"""The entry point: runs a command; an error becomes one line with a remedy and an exit code."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from sembase.command_line import CommandParser, add_commands, run_program
from sembase.errors import MissingDependencyError
from semblend import __version__

_CODES: Final = (
    "exit codes: 0 ok (also a server stopped by SIGTERM or Ctrl-C), 2 wrong usage or setting, 3 environment (missing "
    "package, disk, port), 130 interrupted by Ctrl-C before it served"
)
_INTERRUPTED: Final = "interrupted before serving started"


def command_modules() -> tuple[Any, ...]:
    """Imported here, so that a missing package is reported like any other error."""
    try:
        from semgate.cli import explain, picker, proxy, router  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingDependencyError(error.name or "uvicorn", "gateway", "semgate") from None
    return router, picker, proxy, explain


def parser() -> argparse.ArgumentParser:
    root = CommandParser(
        prog="semgate",
        description="A proxy that records traffic without its text, a KV-aware router, and an endpoint picker for "
        "Envoy that places as the router does, for vLLM, SGLang or any server with an OpenAI-compatible API.",
        epilog=_CODES,
    )
    root.add_argument("--version", action="version", version=f"semgate {__version__}")
    add_commands(root, command_modules(), _CODES)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    return run_program("semgate", parser, arguments, _INTERRUPTED)
