"""The block index beside Dynamo's: ``RadixTree`` (Rust, called from Python) and the stand-alone ``dynamo.indexer``.

Run ``python -m benchmarks.router.index``. One workload, one run: look-up and hashing of 4,096-token requests at a
million blocks, blocks stored and removed per second, bytes per block, events over ZeroMQ. Every answer is checked. On a
busy machine the wall clock also measures other processes, so CPU time is reported too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.engines import dynamo
from scripts.private_venv import clean_environment, python_of

from benchmarks.console import environment, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.documents import ROOT
from benchmarks.router.index.streams import measure_indexer, measure_ours
from benchmarks.targets import Spread, Verdict

OURS, RADIX, INDEXER = "semgate BlockIndex", "dynamo RadixTree", "dynamo.indexer (HTTP)"
TIMED = ("hash_us", "look_up_us", "both_us", "both_cpu_us", "query_us")


def main() -> int:
    arguments = _parse()
    rival = python_of(dynamo.RECIPE) if dynamo.is_installed() and not arguments.ours_only else None
    if rival is None and not arguments.ours_only:
        progress("Dynamo is not built; run: python -m scripts.engines.dynamo (ours alone is measured now)")
    sizes = [str(arguments.blocks), str(arguments.replicas), str(arguments.requests)]
    tables: dict[str, dict[str, Any]] = {}
    progress(f"{OURS}: {arguments.blocks:,} blocks")
    tables[OURS] = _child(Path(sys.executable), "benchmarks.router.index.ours", sizes)
    if rival is not None:
        progress(RADIX)
        tables[RADIX] = _child(rival, "benchmarks.router.index.dynamo", sizes)
    streams: dict[str, dict[str, Any]] = {}
    progress(f"events over ZeroMQ: {arguments.stream_blocks:,} blocks, {OURS}")
    streams[OURS] = measure_ours(arguments.stream_blocks, arguments.requests)
    if rival is not None:
        progress(INDEXER)
        streams[INDEXER] = measure_indexer(rival, arguments.stream_blocks, arguments.requests)
    _show_tables(tables)
    _show_streams(streams)
    verdicts = _verdicts(tables, streams)
    show_verdicts(verdicts)
    record = {
        "environment": environment(),
        "blocks": arguments.blocks,
        "replicas": arguments.replicas,
        "tables": {name: _summary(figures) for name, figures in tables.items()},
        "streams": {name: _summary(figures) for name, figures in streams.items()},
        "verdicts": [verdict.as_record() for verdict in verdicts],
    }
    path = write_results(arguments.name, record)
    progress(f"written: {path.name} in {path.parent.name}/")
    return exit_code(verdicts, arguments.enforce)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.router.index", description=__doc__)
    parser.add_argument("--blocks", type=int, default=1_000_000, help="distinct blocks (default: 1000000)")
    parser.add_argument("--replicas", type=int, default=16)
    parser.add_argument("--requests", type=int, default=2_000, help="look-ups timed (default: 2000)")
    parser.add_argument("--stream-blocks", type=int, default=200_000, help="blocks sent over ZeroMQ")
    parser.add_argument("--ours-only", action="store_true", help="leave Dynamo out")
    parser.add_argument("--enforce", action="store_true", help="missed targets fail the run too")
    parser.add_argument("--name", default="router-index", help="of the file under results/")
    return parser.parse_args()


def _child(python: Path, module: str, sizes: list[str]) -> dict[str, Any]:
    environment_ = clean_environment({"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])})
    command = [str(python), "-m", module, *sizes]
    run = subprocess.run(command, cwd=ROOT, env=environment_, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return figures


def _spread(figures: dict[str, Any], name: str) -> str | None:
    found = Spread.of(figures.get(name, []))
    return None if found is None else f"{found.p50:,.0f} / {found.p99:,.0f}"


def _show_tables(tables: dict[str, dict[str, Any]]) -> None:
    rows = [
        (
            name,
            f"{figures['blocks']:,}",
            f"{figures['store_blocks_per_s']:,.0f}",
            f"{figures['remove_blocks_per_s']:,.0f}" if "remove_blocks_per_s" in figures else None,
            f"{figures['longest_store_call_ms']:.1f}",
            _spread(figures, "hash_us"),
            _spread(figures, "look_up_us"),
            _spread(figures, "both_us"),
            _spread(figures, "both_cpu_us"),
            f"{figures['resident_bytes'] / figures['block_replica_pairs']:.0f}",
            sum(expected != found for expected, found in figures["answers"]),
        )
        for name, figures in tables.items()
    ]
    columns = (
        *("index", "blocks", "stored/s (CPU)", "removed/s (CPU)", "longest store ms", "hash us p50/p99"),
        *(
            "look-up us p50/p99",
            "both us p50/p99",
            "both CPU us p50/p99",
            "resident bytes per block and replica",
            "wrong answers",
        ),
    )
    show_table("4,096-token requests, blocks of 16 tokens", columns, rows)


def _show_streams(streams: dict[str, dict[str, Any]]) -> None:
    rows = [
        (
            name,
            f"{figures['blocks'] / figures['seconds']:,.0f}" if "blocks" in figures else figures["failure"],
            f"{figures['blocks'] / figures['cpu_seconds']:,.0f}" if "blocks" in figures else None,
            _spread(figures, "query_us"),
            figures.get("wrong"),
        )
        for name, figures in streams.items()
    ]
    columns = ("subscriber", "blocks/s (wall)", "blocks/s (CPU)", "question us p50/p99", "wrong answers")
    show_table("Events over ZeroMQ, 64 blocks each", columns, rows)


def _summary(figures: dict[str, Any]) -> dict[str, Any]:
    spreads = {name: Spread.of(figures[name]) for name in TIMED if name in figures}
    kept = {name: value for name, value in figures.items() if name not in (*TIMED, "answers")}
    return kept | {
        name: {"n": one.n, "p50": one.p50, "p99": one.p99, "high": one.high} for name, one in spreads.items() if one
    }


def _verdicts(tables: dict[str, dict[str, Any]], streams: dict[str, dict[str, Any]]) -> list[Verdict]:
    ours = tables[OURS]
    both, cpu = Spread.of(ours["both_us"]), Spread.of(ours["both_cpu_us"])
    wrong = sum(expected != found for one in tables.values() for expected, found in one["answers"])
    found = [
        Verdict("hash and look-up of 4,096 tokens, p99 by the wall", "<=", 1_000, both.p99 if both else None, "us"),
        Verdict("hash and look-up of 4,096 tokens, p99 of CPU time", "<=", 1_000, cpu.p99 if cpu else None, "us"),
        Verdict(
            "resident bytes per block and replica", "<=", 100, ours["resident_bytes"] / ours["block_replica_pairs"]
        ),
        Verdict("answers that differ from the truth", "==", 0, wrong, is_law=True),
        Verdict("answers after the stream that differ", "==", 0, streams[OURS].get("wrong"), is_law=True),
    ]
    if RADIX in tables:
        rival = Spread.of(tables[RADIX]["both_cpu_us"])
        ratio = rival.p50 / cpu.p50 if rival and cpu else None
        found.append(Verdict("times less CPU than RadixTree, p50 of both", ">=", 1, ratio))
        stored = ours["store_blocks_per_s"] / tables[RADIX]["store_blocks_per_s"]
        found.append(Verdict("times more blocks stored per CPU second than RadixTree", ">=", 1, stored))
    return found


if __name__ == "__main__":
    raise SystemExit(main())
