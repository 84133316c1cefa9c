"""``kvmend bench run-offline``: replay a manifest against the planner, without an engine."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode, existing_file
from sembase.streams import write_err, write_out
from sembase.tokenizer import BUILT_IN, NOT_A_MODEL
from sembase.values import fraction, positive
from sembench.cli.output import require_other_file, require_writable
from sembench.console import show
from sembench.console.offline import ablation_table, checks_table, datasets_table, rates_table
from sembench.planner import PlannerConfig
from sembench.replay.offline import OfflineRun, run_offline
from sembench.replay.partial import partial_path
from sembench.replay.session import ReplayConfig

NAME: Final = "run-offline"
SUMMARY: Final = (
    "Replay a manifest offline, without an engine: what an exact cache covers and what the planner finds beyond it."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--manifest", required=True, type=existing_file, metavar="FILE", help="a manifest of kvmend bench build"
    )
    command.add_argument("--output", required=True, type=Path, metavar="FILE", help="the result to write (.json)")
    command.add_argument(
        "--block-size", type=positive, default=16, metavar="N", help="tokens per KV block (default: 16)"
    )
    command.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="a model's tokenizer.json or its directory (default: a built-in tokenizer, which is not a model's)",
    )
    command.add_argument(
        "--semblend-embedder",
        default="none",
        metavar="NAME",
        help="embedder of the semantic path, compared with none (default: none)",
    )
    command.add_argument(
        "--semblend-min-similarity",
        type=fraction,
        default=0.0,
        metavar="FRACTION",
        help="minimum similarity of a discovery (default: 0.0)",
    )
    command.add_argument(
        "--semblend-min-reuse-ratio",
        type=fraction,
        default=0.25,
        metavar="FRACTION",
        help="minimum planned fraction of a prompt (default: 0.25)",
    )
    command.add_argument(
        "--semblend-fuzzy-chunks",
        action="store_true",
        help="align chunks that mostly agree, in donors the embedder suggests",
    )
    command.add_argument(
        "--semblend-fragments",
        action="store_true",
        help="also plan token-identical fragments shorter than the minimum run, in donors the embedder suggests",
    )
    command.add_argument("--disable-multi-donor", action="store_true", help="plan from one donor only")
    command.add_argument("--max-items", type=positive, metavar="N", help="replay the first N items only")
    command.add_argument("--jobs", type=positive, default=1, metavar="N", help="worker processes (default: 1)")
    command.add_argument("--resume", action="store_true", help="continue an interrupted run from FILE.partial.jsonl")


def execute(options: argparse.Namespace) -> ExitCode:
    require_writable(options.output)
    for written in (options.output, partial_path(options.output)):
        require_other_file(written, options.manifest, "--manifest")
    if options.tokenizer in (None, BUILT_IN):
        write_err(f"sembench: note: {NOT_A_MODEL}\n")
    planner = PlannerConfig(
        embedder=options.semblend_embedder.strip().lower().replace("-", "_"),
        min_similarity=options.semblend_min_similarity,
        min_reuse_ratio=options.semblend_min_reuse_ratio,
        multi_donor=not options.disable_multi_donor,
        fuzzy_chunks=options.semblend_fuzzy_chunks,
        exact_materialization_only=not options.semblend_fragments,
    )
    run = OfflineRun(
        manifest=options.manifest,
        output=options.output,
        config=ReplayConfig(options.block_size, options.tokenizer, planner),
        max_items=options.max_items,
        jobs=options.jobs,
        resume=options.resume,
    )
    result = run_offline(run)
    for table in (rates_table(result), datasets_table(result), checks_table(result), ablation_table(result)):
        if table is not None:
            show(table)
    write_out(f"result: {options.output}\n")
    return ExitCode.OK
