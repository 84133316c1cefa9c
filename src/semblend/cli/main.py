"""The entry point of ``semblend``: runs a command and prints errors as one line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from sembase.command_line import add_commands, run_program
from sembase.registry import Registry
from semblend import __version__
from semblend.cli import doctor, explain, guard

PROGRAM: Final = "semblend"
_CODES: Final = (
    "exit codes: 0 ok, 1 nothing found, 2 wrong usage or file, 3 environment (server, disk), 130 interrupted"
)
# Commands of packages above this one, known by name only: importing them here would turn the layers around.
COMMANDS: Final[Registry[Any]] = Registry("command", group="semblend.commands")
COMMANDS.register("estimate", "semestimate.command:COMMAND")


def parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog=program,
        description="Estimate from traffic, check an installation; explain and guard blended answers.",
        epilog=_CODES,
    )
    root.add_argument("--version", action="version", version=f"{program} {__version__}")
    own = {module.NAME: module for module in (doctor, explain, guard)}
    modules = {**{name: COMMANDS.get(name) for name in COMMANDS}, **own}
    add_commands(root, [modules[name] for name in sorted(modules)], _CODES)
    return root


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    return run_program(program, lambda: parser(program), arguments, "nothing was written")
