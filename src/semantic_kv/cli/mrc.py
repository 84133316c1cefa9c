"""``kvmend simulate mrc``: miss ratio over capacity, exact and from samples with their error."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from semantic_kv.cache.result import CACHE_MODELS, UNITS
from semantic_kv.cli.arguments import add_work, policy, run_options
from semantic_kv.cli.folders import new_folder, run_facts
from semantic_kv.experiment.config import BASELINE, CurvePlan, ExperimentConfig, FileSource, PolicyChoice
from semantic_kv.experiment.run import open_source, run_study_on
from semantic_kv.report.outputs import curve_text, write_curves
from semantic_kv.sampling import capacity_ladder
from semantic_kv.shipped import EXAMPLE, trace_or_example
from sembase.command_line import ExitCode
from sembase.streams import write_out
from sembase.trace.locate import HELP as TRACE_HELP
from sembase.values import capacity, positive, positive_fraction

NAME: Final = "mrc"
SUMMARY: Final = "Miss-ratio curves of a trace: exact at many capacities, and from samples with their error."
EXAMPLES: Final = """\
  kvmend simulate mrc --trace mooncake.jsonl.gz --policies lru s3fifo --sample-rates 0.1 0.05
  kvmend simulate mrc --trace trace.jsonl --unit tokens --capacities 10k 50k 200k --no-bounds"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--trace",
        required=True,
        type=trace_or_example,
        metavar="TRACE",
        help=f"{TRACE_HELP}, or {EXAMPLE!r}, in any known format",
    )
    command.add_argument("--format", metavar="NAME", help="trace format (default: detected from the first line)")
    command.add_argument("--max-requests", type=positive, metavar="N", help="use the first N requests only")
    command.add_argument(
        "--policies",
        nargs="+",
        type=policy,
        default=[PolicyChoice(BASELINE)],
        metavar="EVICT[+ADMIT]",
        help="policies to compare (default: lru)",
    )
    command.add_argument(
        "--capacities",
        nargs="+",
        type=capacity,
        metavar="N",
        help="cache sizes (default: 12, from a thousandth of the distinct blocks or tokens to all of them)",
    )
    command.add_argument(
        "--unit", choices=UNITS, default="blocks", help="unit of the capacities (default: %(default)s)"
    )
    command.add_argument(
        "--model", choices=CACHE_MODELS, default="prefix_tree", help="cache model (default: %(default)s)"
    )
    command.add_argument(
        "--sample-rates",
        nargs="+",
        type=positive_fraction,
        default=[],
        metavar="R",
        help="also estimate the curves from samples of these fractions, for example 0.1 0.01",
    )
    command.add_argument(
        "--draws", type=positive, default=3, metavar="N", help="samples per rate (default: %(default)s)"
    )
    command.add_argument("--no-bounds", action="store_true", help="omit the infinite cache and the clairvoyant bound")
    command.add_argument(
        "--output-dir",
        type=Path,
        default=Path("outputs/curves"),
        metavar="DIR",
        help="parent of the results folder (default: %(default)s)",
    )
    add_work(command)


def execute(options: argparse.Namespace) -> ExitCode:
    source = FileSource(str(options.trace), options.format, options.max_requests)
    trace = open_source(source, 0, Path())
    sizes = tuple(sorted(set(options.capacities or capacity_ladder(trace, options.unit))))
    policies = tuple(dict.fromkeys(options.policies))
    plan = CurvePlan(policies, sizes, tuple(dict.fromkeys(options.sample_rates)), options.draws, options.model)
    config = ExperimentConfig(
        experiment="mrc",
        description=f"Miss-ratio curve of {trace.name}.",
        source=source,
        unit=options.unit,
        capacities=(sizes[len(sizes) // 2],),
        policies=policies,
        models=(options.model,),
        curve=plan,
        bounds=not options.no_bounds,
    )
    study = run_study_on(config, lambda seed: trace, run_options(options, options.output_dir, Path()))
    folder = new_folder(options.output_dir, "mrc")
    write_curves(study, folder, run_facts())
    write_out(curve_text(study))
    write_out(f"results: {folder}\n")
    return ExitCode.OK
