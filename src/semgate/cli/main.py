"""The entry point: runs a command and turns errors into one line that says what to do, and an exit code."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from semblend import __version__
from semblend.command_line import add_commands, exit_code_of
from semblend.errors import MissingDependencyError

_CODES: Final = (
    "exit codes: 0 ok, 2 wrong usage or setting, 3 environment (missing package, disk, port), 130 interrupted (Ctrl-C)"
)
_INTERRUPTED: Final = "open streams were given their time to end"


def command_modules() -> tuple[Any, ...]:
    """Imported here, so that a missing package is told like any other error."""
    try:
        from semgate.cli import explain, proxy, router  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingDependencyError(error.name or "uvicorn", "gateway", "semgate") from None
    return router, proxy, explain


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="semgate",
        description="A proxy that records without leaking, and a router that knows where the KV is, in front of vLLM, "
        "SGLang or anything that speaks the OpenAI API.",
        epilog=_CODES,
    )
    root.add_argument("--version", action="version", version=f"semgate {__version__}")
    add_commands(root, command_modules(), _CODES)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    return exit_code_of("semgate", lambda: _execute(arguments), _INTERRUPTED)


def _execute(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    return int(options.execute(options))
