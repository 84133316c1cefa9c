"""Do we decide as libcachesim does, reference by reference? ``python -m benchmarks.simulator parity``.

Block-set model, every reference a request of its own, blocks of one size: the semantics both share. LRU, FIFO, S3-FIFO
(small 0.1, ghost 0.9, promotion at 2 uses), SIEVE and ARC, on block I/O and on the blocks of a conversation trace.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scripts.data.folder import DATA

from benchmarks.console import exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.simulator import block_device
from benchmarks.targets import Verdict
from semantic_kv.simulate import simulate
from sembase.trace.columns import BlockTrace
from sembase.trace.load import load_trace

POLICIES = ("lru", "fifo", "s3fifo", "sieve", "arc")
CAPACITIES = (100, 1_000, 10_000)
TRACES = {
    "cloudphysics_io": "cache/cloudphysics_io.csv.gz",
    "mooncake, flattened": "traces/mooncake_conversation_trace.jsonl.gz",
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator parity", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with cache/ and traces/ (default: %(default)s)")
    arguments = parser.parse_args(argv)
    rows: list[tuple[object, ...]] = []
    verdicts: list[Verdict] = []
    for name, file in TRACES.items():
        path = arguments.data / file
        trace = (block_device.load(path) if path.name.endswith(".csv.gz") else load_trace(path)).flattened()
        differing = 0
        for policy in POLICIES:
            for capacity in CAPACITIES:
                progress(f"{name}: {policy}, {capacity:,} blocks")
                row, wrong = _compare(trace, policy, capacity)
                rows.append((name, *row))
                differing += wrong
        verdicts.append(Verdict(f"{name}: references decided otherwise", "==", 0, differing, is_law=True))
    columns = ("trace", "policy", "blocks", "references", "our hits", "libcachesim's hits", "decided otherwise")
    show_table("Parity with libcachesim, reference by reference", columns, rows)
    show_verdicts(verdicts)
    write_results("simulator-parity", {"rows": rows, "verdicts": [verdict.as_record() for verdict in verdicts]})
    return exit_code(verdicts, enforce=True)


def _compare(trace: BlockTrace, policy: str, capacity: int) -> tuple[tuple[object, ...], int]:
    from benchmarks.simulator.rival import hits_one_by_one

    ours = simulate(trace, capacity=capacity, evict=policy, model="block_set").per_request_hit_blocks > 0
    theirs = hits_one_by_one(policy, trace.nodes, capacity)
    wrong = int(np.count_nonzero(ours != theirs))
    counts = (f"{len(ours):,}", f"{int(ours.sum()):,}", f"{int(theirs.sum()):,}", wrong)
    return (policy, f"{capacity:,}", *counts), wrong
