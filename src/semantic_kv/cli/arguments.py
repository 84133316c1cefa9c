"""Argument types with messages that say what is wrong with the value, and the options that several commands share."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Final

from semantic_kv.experiment.config import PolicyChoice
from semantic_kv.experiment.config_file import policy_choice
from semantic_kv.experiment.run import RunOptions
from semantic_kv.experiment.runners import runner_named
from sembase.errors import ConfigurationError

_SUFFIXES: Final = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def positive_int(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not at least 1")
    return value


def capacity(text: str) -> int:
    """A whole number; ``5k`` is 5,000 and ``2M`` is 2,000,000."""
    scale = _SUFFIXES.get(text[-1:].lower(), 1)
    try:
        value = float(text[:-1] if scale > 1 else text) * scale
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a capacity; write 5000, 5k or 2M") from None
    if not math.isfinite(value) or value < 1 or value != int(value):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole capacity of at least 1")
    return int(value)


def share(text: str) -> float:
    value = amount(text)
    if not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0 and at most 1")
    return value


def amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not 0.0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number of at least 0")
    return value


def policy(text: str) -> PolicyChoice:
    """``lru`` or ``lru+second_use``."""
    try:
        return policy_choice(text, "policy")
    except ConfigurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_work(command: argparse.ArgumentParser) -> None:
    """How the cells are run; the same for every command that simulates."""
    work = command.add_argument_group("work")
    work.add_argument("--jobs", type=positive_int, default=1, metavar="N", help="workers (default: %(default)s)")
    work.add_argument(
        "--runner",
        choices=("processes", "ray"),
        default="processes",
        help="who the workers are: processes of this machine, or a local Ray (extra: ray; default: %(default)s)",
    )
    work.add_argument("--fresh", action="store_true", help="simulate finished cells again instead of taking them")
    work.add_argument("--quiet", action="store_true", help="no progress on stderr")


def run_options(options: argparse.Namespace, output: Path, traces: Path) -> RunOptions:
    return RunOptions(output, traces, runner_named(options.runner, options.jobs), options.fresh, options.quiet)
