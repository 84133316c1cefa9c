"""``kvmend estimate TRACE [TRACE ...]``: recorded traffic in, a summary and one page out; no engine, no GPU.

Only the arguments: other commands of ``semblend`` import this module too, so that the rest is loaded when it runs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode, existing_file
from sembase.registry import load_target
from sembase.trace.locate import HELP as TRACE_HELP
from sembase.trace.locate import existing_trace
from sembase.values import number, positive
from semestimate.hardware import DEVICES, MODELS

NAME: Final = "estimate"
SUMMARY: Final = "Estimate from recorded traffic what KV reuse would save: no engine, no GPU, a summary and a page."
EXAMPLES: Final = """\
  kvmend estimate traces/                                     (a folder written by kvmend proxy)
  kvmend estimate litellm.jsonl otel.json --gpu L40S --model Qwen3-30B-A3B
  kvmend estimate traces/ --calibration calibration.json --price 2.50"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("traces", nargs="+", type=existing_trace, metavar="TRACE", help=f"{TRACE_HELP}, any format")
    command.add_argument("--format", metavar="NAME", help="trace format (default: detected from the first line)")
    command.add_argument(
        "--output", type=Path, default=Path("estimate.html"), metavar="FILE", help="the page (default: %(default)s)"
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    command.add_argument(
        "--gpu", default="H100", metavar="NAME", help=f"{', '.join(each.name for each in DEVICES)} (default: H100)"
    )
    command.add_argument(
        "--model",
        default="Llama-3.1-8B",
        metavar="NAME",
        help=f"{', '.join(each.name for each in MODELS)} (default: Llama-3.1-8B)",
    )
    command.add_argument(
        "--calibration",
        type=existing_file,
        metavar="FILE",
        help="your server's calibration.json (kvmend simulate calibrate)",
    )
    command.add_argument("--price", type=number(0.0, above=True), metavar="AMOUNT", help="money per GPU and hour")
    command.add_argument("--tokenizer", metavar="PATH", help="tokenizer.json of your model (default: a built-in rule)")
    command.add_argument("--max-requests", type=positive, metavar="N", help="read the first N requests only")
    command.add_argument("--quiet", action="store_true", help="show no progress")


def execute(options: argparse.Namespace) -> ExitCode:
    return ExitCode(load_target("semestimate.run:run")(options))


COMMAND: Final = sys.modules[__name__]  # what the table of commands names: modules are commands
