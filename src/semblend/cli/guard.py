"""``kvmend guard FILE``: the state of every class; ``--reset`` turns one on again."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError
from sembase.streams import write_out
from semblend.contract import PlanShape
from semblend.guard.verdicts import decode_tracker, write_tracker

NAME: Final = "guard"
SUMMARY: Final = "Show which classes the guard watches or has turned off; --reset turns one on again."
EXAMPLES: Final = """\
  kvmend guard outputs/guard.json
  kvmend guard outputs/guard.json --reset MODEL reorder     (stop the proxy first: it keeps the tests in memory)"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE", help="the guard's file (kvmend proxy --guard-file)")
    command.add_argument(
        "--reset", nargs=2, metavar=("MODEL", "CLASS"), help="turn a class on again and start a new test"
    )


def execute(options: argparse.Namespace) -> ExitCode:
    tracker = decode_tracker(options.file.read_text(encoding="utf-8"), str(options.file))
    if options.reset is not None:
        model, name = options.reset
        if name not in list(PlanShape) or not tracker.reset(model, PlanShape(name)):
            known = ", ".join(f"{model} {shape.value}" for model, shape in sorted(tracker.tests)) or "none"
            raise ConfigurationError(f"no test of '{model} {name}' in {options.file}; known: {known}")
        write_tracker(options.file, tracker)
    for key in sorted(tracker.tests):
        write_out(f"{key[0]} {key[1].value}: {tracker.why(key)}\n")
    return ExitCode.OK
