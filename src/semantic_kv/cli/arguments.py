"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

from semantic_kv.experiment.config import PolicyChoice
from semantic_kv.experiment.config_file import policy_choice
from semantic_kv.experiment.run import RunOptions
from semantic_kv.experiment.runners import RUNNERS, runner_named
from sembase.errors import ConfigurationError
from sembase.values import positive


def policy(text: str) -> PolicyChoice:
    """``lru`` or ``lru+second_use``."""
    try:
        return policy_choice(text, "policy")
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_work(command: argparse.ArgumentParser) -> None:
    """Options for running cells, shared by every command that simulates."""
    work = command.add_argument_group("work")
    work.add_argument("--jobs", type=positive, default=1, metavar="N", help="workers (default: %(default)s)")
    work.add_argument(
        "--runner",
        choices=RUNNERS,
        default="processes",
        help="run the workers as local processes or on a local Ray (extra: ray; default: %(default)s)",
    )
    work.add_argument("--fresh", action="store_true", help="ignore stored cells and simulate them again")
    work.add_argument("--quiet", action="store_true", help="no progress on stderr")


def run_options(options: argparse.Namespace, output: Path, traces: Path) -> RunOptions:
    return RunOptions(output, traces, runner_named(options.runner, options.jobs), options.fresh, options.quiet)
