"""The entry point of ``semblend``: runs a command and prints errors as one line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from sembase.command_line import add_commands, exit_code_of
from semblend import __version__
from semblend.cli import calibrate, explain, guard

_CODES: Final = (
    "exit codes: 0 ok, 1 nothing found, 2 wrong usage or file, 3 environment (server, disk), 130 interrupted"
)


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="semblend", description="Measure, explain and guard what blended answers cost.", epilog=_CODES
    )
    root.add_argument("--version", action="version", version=f"semblend {__version__}")
    add_commands(root, (calibrate, explain, guard), _CODES)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    return exit_code_of("semblend", lambda: _execute(arguments), "nothing was written")


def _execute(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    return int(options.execute(options))
