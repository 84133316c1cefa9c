"""The entry point: runs a command and turns errors into a one-line message and an exit code."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from sembase.command_line import CommandParser, add_commands, run_program
from sembench import __version__
from sembench.cli import (
    answer_budgets,
    assert_result_gates,
    audit_manifest,
    build,
    calibrate_noise_floor,
    collect_k8s_engine_events,
    merge_results,
    report,
    run_live_gateway,
    run_live_sglang,
    run_load,
    run_offline,
    summarize_engine_events,
)

COMMAND_MODULES: Final = (
    build,
    run_offline,
    run_live_gateway,
    run_live_sglang,
    run_load,
    calibrate_noise_floor,
    answer_budgets,
    merge_results,
    audit_manifest,
    assert_result_gates,
    summarize_engine_events,
    collect_k8s_engine_events,
    report,
)
PROGRAM: Final = "sembench"
_EPILOG: Final = (
    "exit codes: 0 ok, 1 gate or audit failed, 2 wrong usage or input, 3 environment (missing package, disk), "
    "130 interrupted (Ctrl-C)"
)
_INTERRUPTED: Final = "to continue, run the same command with --resume if it has that option"


def parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    root = CommandParser(
        prog=program,
        description="Measures what a prefix cache covers, what a planner finds beyond it, and what a backend confirms.",
        epilog=_EPILOG,
    )
    root.add_argument("--version", action="version", version=f"{program} {__version__}")
    add_commands(root, COMMAND_MODULES, _EPILOG)
    return root


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    return run_program(program, lambda: parser(program), arguments, _INTERRUPTED)
