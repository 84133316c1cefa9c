"""The router's index of announced blocks: ``python -m benchmarks.router.index``.

One workload, one run: look-up and hashing of 4,096-token requests at a million blocks, blocks stored and removed per
second, bytes per block, events over ZeroMQ. Every answer is checked. On a busy machine the wall clock also measures
other processes, so CPU time is reported too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from scripts.private_venv import clean_environment

from benchmarks.console import environment, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.documents import ROOT
from benchmarks.router.index.streams import measure_stream
from benchmarks.targets import Spread, Verdict

TIMED = ("hash_us", "look_up_us", "both_us", "both_cpu_us", "query_us")


def main() -> int:
    arguments = _parse()
    progress(f"{arguments.blocks:,} blocks")
    table = _filled_and_asked([str(arguments.blocks), str(arguments.replicas), str(arguments.requests)])
    progress(f"events over ZeroMQ: {arguments.stream_blocks:,} blocks")
    stream = measure_stream(arguments.stream_blocks, arguments.requests)
    _show_table(table)
    _show_stream(stream)
    verdicts = _verdicts(table, stream)
    show_verdicts(verdicts)
    record = {
        "environment": environment(),
        "blocks": arguments.blocks,
        "replicas": arguments.replicas,
        "table": _summary(table),
        "stream": _summary(stream),
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
    parser.add_argument("--enforce", action="store_true", help="missed targets fail the run too")
    parser.add_argument("--name", default="router-index", help="of the file under results/")
    return parser.parse_args()


def _filled_and_asked(sizes: list[str]) -> dict[str, Any]:
    """In a process of its own, so that its memory is its own."""
    environment_ = clean_environment({"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])})
    command = [sys.executable, "-m", "benchmarks.router.index.filled", *sizes]
    run = subprocess.run(command, cwd=ROOT, env=environment_, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return figures


def _spread(figures: dict[str, Any], name: str) -> str | None:
    found = Spread.of(figures.get(name, []))
    return None if found is None else f"{found.p50:,.0f} / {found.p99:,.0f}"


def _show_table(figures: dict[str, Any]) -> None:
    rows = [
        ("blocks", f"{figures['blocks']:,}"),
        ("stored/s (CPU)", f"{figures['store_blocks_per_s']:,.0f}"),
        ("removed/s (CPU)", f"{figures['remove_blocks_per_s']:,.0f}"),
        ("longest store ms", f"{figures['longest_store_call_ms']:.1f}"),
        ("hash us p50/p99", _spread(figures, "hash_us")),
        ("look-up us p50/p99", _spread(figures, "look_up_us")),
        ("both us p50/p99", _spread(figures, "both_us")),
        ("both CPU us p50/p99", _spread(figures, "both_cpu_us")),
        ("resident bytes per block and replica", f"{figures['resident_bytes'] / figures['block_replica_pairs']:.0f}"),
        ("wrong answers", _wrong(figures)),
    ]
    show_table("4,096-token requests, blocks of 16 tokens", ("index", "measured"), rows)


def _show_stream(figures: dict[str, Any]) -> None:
    if "failure" in figures:
        show_table("Events over ZeroMQ, 64 blocks each", ("stream", "measured"), [("failure", figures["failure"])])
        return
    rows = [
        ("blocks/s (wall)", f"{figures['blocks'] / figures['seconds']:,.0f}"),
        ("blocks/s (CPU)", f"{figures['blocks'] / figures['cpu_seconds']:,.0f}"),
        ("question us p50/p99", _spread(figures, "query_us")),
        ("wrong answers", figures["wrong"]),
    ]
    show_table("Events over ZeroMQ, 64 blocks each", ("stream", "measured"), rows)


def _wrong(figures: dict[str, Any]) -> int:
    return sum(expected != found for expected, found in figures["answers"])


def _summary(figures: dict[str, Any]) -> dict[str, Any]:
    spreads = {name: Spread.of(figures[name]) for name in TIMED if name in figures}
    kept = {name: value for name, value in figures.items() if name not in (*TIMED, "answers")}
    return kept | {
        name: {"n": one.n, "p50": one.p50, "p99": one.p99, "high": one.high} for name, one in spreads.items() if one
    }


def _verdicts(table: dict[str, Any], stream: dict[str, Any]) -> list[Verdict]:
    both, cpu = Spread.of(table["both_us"]), Spread.of(table["both_cpu_us"])
    held_bytes = table["resident_bytes"] / table["block_replica_pairs"]
    return [
        Verdict("hash and look-up of 4,096 tokens, p99 by the wall", "<=", 1_000, both.p99 if both else None, "us"),
        Verdict("hash and look-up of 4,096 tokens, p99 of CPU time", "<=", 1_000, cpu.p99 if cpu else None, "us"),
        Verdict("resident bytes per block and replica", "<=", 100, held_bytes),
        Verdict("answers that differ from the truth", "==", 0, _wrong(table), is_law=True),
        Verdict("answers after the stream that differ", "==", 0, stream.get("wrong"), is_law=True),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
