"""``kvmend simulate collect``: a trace with observed times from the mock server."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from semantic_kv.collect import PlanOptions, collect_mock_trace
from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError
from sembase.streams import write_out
from sembase.values import positive

NAME: Final = "collect"
SUMMARY: Final = (
    "Collect a trace with observed TTFT from a mock server, in simulated time. kvmend proxy records a real server."
)
EXAMPLES: Final = """\
  kvmend simulate collect --mock --output mock.jsonl
  kvmend simulate calibrate --trace mock.jsonl --output-dir calibration"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--mock", action="store_true", help="required: every record is marked as mock")
    command.add_argument("--output", required=True, type=Path, metavar="FILE.jsonl", help="the trace to write")
    command.add_argument(
        "--requests", type=positive, default=120, metavar="N", help="number of requests (default: %(default)s)"
    )
    command.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of prompts and times (default: %(default)s)",
    )
    command.add_argument("--keep-raw-text", action="store_true", help="write prompt text instead of digests")


def execute(options: argparse.Namespace) -> ExitCode:
    if not options.mock:
        raise ConfigurationError("pass --mock; a real server is recorded by kvmend proxy, whose traces calibrate reads")
    plan = PlanOptions(requests=options.requests, seed=options.seed)
    written = collect_mock_trace(options.output, plan, keep_text=options.keep_raw_text)
    write_out(f"{written} requests served; trace: {options.output}\n")
    return ExitCode.OK
