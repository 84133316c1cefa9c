"""``kvmend bench merge-results``: a cold-only and a warm-only run of one manifest become a paired result."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode, existing_file
from sembase.streams import write_out
from sembench.cli.output import require_other_file, require_writable
from sembench.console import show
from sembench.console.live import live_tables
from sembench.live.merge import merge
from sembench.result import write_result

NAME: Final = "merge-results"
SUMMARY: Final = "Join a cold-only and a warm-only live run of the same manifest and settings into a paired result."


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--cold", required=True, type=existing_file, metavar="FILE", help="a result of a run with --cold-only"
    )
    command.add_argument(
        "--warm", required=True, type=existing_file, metavar="FILE", help="a result of a run without --paired"
    )
    command.add_argument("--output", required=True, type=Path, metavar="FILE", help="the paired result to write")


def execute(options: argparse.Namespace) -> ExitCode:
    require_writable(options.output)
    require_other_file(options.output, options.cold, "--cold")
    require_other_file(options.output, options.warm, "--warm")
    result = merge(options.cold, options.warm)
    write_result(options.output, result)
    for table in live_tables(result):
        show(table)
    write_out(f"result: {options.output}\n")
    return ExitCode.OK
