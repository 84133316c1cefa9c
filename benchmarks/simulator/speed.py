"""Block references a second on one core, and bytes a block. ``python -m benchmarks.simulator speed``.

The Claude Code trace (85 M references) through the prefix-tree model; and, reference by reference as object caches see
it, beside libcachesim on the same references. Two clocks: on a shared machine the processor's is the fair one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from scripts.data.folder import DATA

from benchmarks.console import RESULTS, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.targets import Verdict
from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.result import CacheModel
from semantic_kv.cache.spec import cache_spec
from sembase.trace.columns import BlockTrace
from sembase.trace.load import load_trace

POLICIES = ("lru", "s3fifo", "sieve")
_CHUNK_REQUESTS = 2_500  # of the trace, flattened: about 5 M references at a time


@dataclass(frozen=True, slots=True)
class Speed:
    what: str
    policy: str
    references: int
    hit_ratio: float | None
    wall_seconds: float
    cpu_seconds: float
    bytes_a_known_block: float | None
    bytes_a_resident_block: float | None

    @property
    def millions_a_cpu_second(self) -> float:
        return self.references / self.cpu_seconds / 1e6

    def row(self) -> tuple[object, ...]:
        known, resident = self.bytes_a_known_block, self.bytes_a_resident_block
        return (
            self.what,
            self.policy,
            f"{self.references:,}",
            None if self.hit_ratio is None else f"{self.hit_ratio:.4f}",
            f"{self.wall_seconds:.2f}",
            f"{self.references / self.wall_seconds / 1e6:.1f}",
            f"{self.cpu_seconds:.2f}",
            f"{self.millions_a_cpu_second:.1f}",
            None if known is None else f"{known:.0f}",
            None if resident is None else f"{resident:.0f}",
        )


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    trace = claude_code(arguments.data, arguments.sessions, arguments.at_once)
    progress(
        f"{trace.request_count:,} requests, {trace.reference_count:,} references, {trace.node_count:,} known blocks, "
        f"columns of {trace.memory_bytes() / 2**20:,.0f} MiB"
    )
    found = [_ours(trace, policy, arguments.capacity, "prefix_tree") for policy in POLICIES]
    if not arguments.only_tree:
        found += [_ours(trace, policy, arguments.capacity, "block_set") for policy in POLICIES]
        found += _theirs(trace, arguments.capacity)
    columns = (
        "what",
        "policy",
        "references",
        "hit ratio",
        "wall s",
        "M/s",
        "cpu s",
        "M/cpu s",
        "B/known",
        "B/resident",
    )
    show_table(f"{trace.name}, {arguments.capacity:,} blocks, one core", columns, [speed.row() for speed in found])
    verdicts = _verdicts(found)
    show_verdicts(verdicts)
    rows = [{field.name: getattr(speed, field.name) for field in fields(speed)} for speed in found]
    write_results("simulator-speed", {"rows": rows, "verdicts": [verdict.as_record() for verdict in verdicts]})
    return exit_code(verdicts, arguments.enforce)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator speed", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with traces/ (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=1_000_000, help="at most this many sessions (default: all 692)")
    parser.add_argument("--at-once", type=int, default=20, help="sessions side by side (default: %(default)s)")
    parser.add_argument("--capacity", type=int, default=50_000, help="blocks (default: %(default)s)")
    parser.add_argument("--only-tree", action="store_true", help="leave the object-cache comparison out")
    parser.add_argument("--enforce", action="store_true", help="fail where a target is not reached")
    return parser.parse_args(argv)


def claude_code(data: Path, sessions: int, at_once: int) -> BlockTrace:
    """The interned trace; kept under results/ because reading the text takes a minute."""
    kept = RESULTS / f"claude_code_{sessions}_{at_once}.npz"
    if kept.exists():
        with np.load(kept) as columns:
            values = {name: columns[name] for name in columns.files}
        return BlockTrace(name="claude_code", block_tokens=int(values.pop("block_tokens")), **values)
    options = {"max_sessions": sessions, "sessions_at_once": at_once}
    trace = load_trace(data / "traces" / "weka_claude_code.jsonl.gz", options=options)
    columns = {field.name: getattr(trace, field.name) for field in fields(trace) if field.name != "name"}
    RESULTS.mkdir(exist_ok=True)
    np.savez(kept, **columns)
    return trace


def _ours(trace: BlockTrace, policy: str, capacity: int, model: CacheModel) -> Speed:
    is_tree = model == "prefix_tree"
    progress(f"ours, {model}: {policy}")
    replay = CompiledReplay(cache_spec(capacity=capacity, evict=policy, model=model), per_request=False)
    step = trace.request_count if is_tree else _CHUNK_REQUESTS
    cpu = 0.0
    for start in range(0, trace.request_count, step):
        chunk = trace.window(start, start + step)
        chunk = chunk if is_tree else chunk.flattened()
        replay.feed(chunk.window(0, 0))  # compiling is not serving
        before = time.process_time()
        replay.feed(chunk)
        cpu += time.process_time() - before
    run = replay.result()
    return Speed(
        what="ours, prefix tree" if is_tree else "ours, a reference a request",
        policy=policy,
        references=run.references,
        hit_ratio=run.hit_ratio,
        wall_seconds=run.seconds,
        cpu_seconds=cpu,
        bytes_a_known_block=replay.state_bytes() / trace.node_count,
        bytes_a_resident_block=replay.state_bytes() / max(1, replay.resident_blocks),
    )


def _theirs(trace: BlockTrace, capacity: int) -> list[Speed]:
    from benchmarks.simulator.rival import replay_file, write_references

    found = []
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        path = Path(folder) / "references.bin"
        write_references(path, [trace.content[part] for part in np.array_split(trace.nodes, 20)])
        for policy in POLICIES:
            progress(f"libcachesim: {policy}")
            run = replay_file(policy, path, capacity)
            found.append(
                Speed(
                    "libcachesim, a reference a request",
                    policy,
                    trace.reference_count,
                    run.hit_ratio,
                    run.wall_seconds,
                    run.cpu_seconds,
                    None,
                    None,
                )
            )
    return found


def _verdicts(found: Sequence[Speed]) -> list[Verdict]:
    tree = {speed.policy: speed.millions_a_cpu_second for speed in found if speed.what == "ours, prefix tree"}
    slowest = min(tree["s3fifo"], tree["sieve"])
    verdicts = [
        Verdict("LRU, prefix tree", ">=", 10.0, tree["lru"], "M references a cpu second"),
        Verdict("S3-FIFO and SIEVE, the slower, against LRU", ">=", 0.5, slowest / tree["lru"], "of LRU's speed"),
    ]
    paged = {(speed.what, speed.policy): speed.hit_ratio for speed in found if "a reference a request" in speed.what}
    for policy in POLICIES:
        ours, theirs = (paged.get((f"{who}, a reference a request", policy)) for who in ("ours", "libcachesim"))
        if ours is not None and theirs is not None:
            verdicts.append(
                Verdict(
                    f"{policy}: our hit ratio's distance from libcachesim's", "==", 0.0, abs(round(ours - theirs, 9))
                )
            )
    return verdicts
