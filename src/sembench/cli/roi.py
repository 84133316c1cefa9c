"""``kvmend bench roi``: expected saving and break-even from prompt lengths, a reuse rate and measured costs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode, existing_file
from sembase.errors import ConfigurationError
from sembase.files import replace_atomically
from sembase.streams import write_out
from sembase.trace.locate import HELP as TRACE_HELP
from sembase.trace.locate import existing_trace, trace_files
from sembase.values import count, fraction, positive
from sembench.cli.output import require_other_file, require_writable
from sembench.console import show
from sembench.roi.costs import MeasuredCosts, read_costs
from sembench.roi.estimate import RoiOptions, estimate
from sembench.roi.lengths import read_lengths
from sembench.roi.rate import ReuseRate, counted, parse_rate
from sembench.roi.record import as_record, tables

NAME: Final = "roi"
SUMMARY: Final = (
    "Estimate saving and break-even from prompt lengths, a reuse rate and costs measured by our benchmarks."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--lengths",
        required=True,
        type=existing_trace,
        metavar="FILE",
        help=f"prompt lengths: a histogram, a manifest, a result, or a trace ({TRACE_HELP})",
    )
    command.add_argument(
        "--costs",
        required=True,
        action="append",
        type=existing_file,
        metavar="FILE",
        help="measured costs: a paired live result or results/vllm-*.json of make bench-vllm; may be repeated",
    )
    command.add_argument(
        "--reuse-rate",
        metavar="RATE",
        help="fraction of requests with reuse, as 0.26 or as counts, 31/120 (default: that of the paired results)",
    )
    command.add_argument(
        "--reuse-rate-interval",
        nargs=2,
        type=fraction,
        metavar=("LOW", "HIGH"),
        help="95 %% interval of the rate; not needed with counts",
    )
    command.add_argument(
        "--capture-rate",
        type=fraction,
        default=1.0,
        metavar="FRACTION",
        help="fraction of misses captured as donors (default: 1.0)",
    )
    command.add_argument("--tokenizer", metavar="PATH", help="a model's tokenizer, to count the tokens of a manifest")
    command.add_argument(
        "--extrapolate", action="store_true", help="allow lengths that were not measured; the output states how many"
    )
    command.add_argument("--draws", type=positive, default=4000, metavar="N", help="samples (default: 4000)")
    command.add_argument("--seed", type=count, default=0, metavar="N", help="seed of the samples (default: 0)")
    command.add_argument(
        "--output", type=Path, metavar="FILE", help="the estimate as JSON, for kvmend bench report --roi"
    )


def execute(options: argparse.Namespace) -> ExitCode:
    if options.output is not None:
        require_writable(options.output)
        for given in (*trace_files(options.lengths), *options.costs):
            require_other_file(options.output, given, "an input")
    costs = read_costs(options.costs)
    rate = _rate(options, costs)
    manner = RoiOptions(options.capture_rate, options.extrapolate, options.draws, options.seed)
    histogram = read_lengths(options.lengths, options.tokenizer)
    found = estimate(histogram, costs, rate, manner)
    record = as_record(found, histogram, costs, rate, manner)
    for table in tables(found, rate, record["notes"]):
        show(table)
    if options.output is not None:
        with replace_atomically(options.output) as stream:
            stream.write(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        write_out(f"estimate: {options.output}\n")
    return ExitCode.OK


def _rate(options: argparse.Namespace, costs: MeasuredCosts) -> ReuseRate:
    interval = None if options.reuse_rate_interval is None else tuple(options.reuse_rate_interval)
    if options.reuse_rate is not None:
        return parse_rate(options.reuse_rate, interval)
    if interval is not None:
        raise ConfigurationError("--reuse-rate-interval needs --reuse-rate")
    if costs.reported == 0:
        raise ConfigurationError(
            "--costs: no backend reported on any request, so no reuse was measured; run again with --connector-audit"
        )
    if costs.reused is None or costs.reported is None:
        raise ConfigurationError(
            "--reuse-rate is required: the requests behind these costs were selected for reuse; use the rate of your "
            "traffic (from a live result, the connector's events or an offline stream)"
        )
    return counted(costs.reused, costs.reported, "that of the paired results: of their manifest, not of your traffic")
