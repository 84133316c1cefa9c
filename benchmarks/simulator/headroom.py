"""How much of what LRU leaves on the table do policies take? ``python -m benchmarks.simulator headroom``.

The Mooncake table of the reference figures (reproduced or not), every policy's share of the distance from LRU to the
clairvoyant bound there, and what ours does on the other traces.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.data.folder import DATA

from benchmarks.console import exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.targets import Verdict
from semantic_kv.bound import Bound, clairvoyant, greedy_clairvoyant, infinite
from semantic_kv.cache.result import Replay
from semantic_kv.simulate import simulate
from sembase.trace.columns import BlockTrace
from sembase.trace.load import load_trace

OURS = "session_pace"
RIVALS = ("lfu", "s3fifo", "sieve", "arc")
HEADROOM_BLOCKS = (2_000, 5_000, 10_000, 20_000)
# capacity: FIFO, LFU, LRU, greedy clairvoyant; SIMULATOR.md
REFERENCE = {
    1_000: (0.0445, 0.0774, 0.0445, 0.1907),
    2_000: (0.0543, 0.1012, 0.0543, 0.2550),
    5_000: (0.1116, 0.1412, 0.1118, 0.3412),
    10_000: (0.2109, 0.1873, 0.2116, 0.3664),
    20_000: (0.2878, 0.2492, 0.2878, 0.3664),
    50_000: (0.3544, 0.3430, 0.3546, 0.3664),
}


@dataclass(frozen=True, slots=True)
class OtherTrace:
    name: str
    file: str
    capacities: tuple[int, ...]
    options: dict[str, object]


OTHERS = (
    OtherTrace(
        "mooncake_synthetic", "traces/mooncake_synthetic_trace.jsonl.gz", (500, 1_000, 2_000, 5_000, 20_000), {}
    ),
    OtherTrace("agent_miniswe", "text/agent_miniswe.jsonl.gz", (500, 1_000, 2_000, 5_000), {}),
    OtherTrace("agent_magagent", "text/agent_magagent.jsonl.gz", (500, 1_000, 2_000, 5_000), {}),
    OtherTrace("agent_taubench", "text/agent_taubench.jsonl.gz", (50, 100, 200, 400), {}),
    OtherTrace(
        "claude_code (40 sessions, 20 at once)",
        "traces/weka_claude_code.jsonl.gz",
        (10_000, 20_000, 50_000, 100_000),
        {"max_sessions": 40, "sessions_at_once": 20},
    ),
    OtherTrace(
        "claude_code (120 sessions, 20 at once)",
        "traces/weka_claude_code.jsonl.gz",
        (10_000, 20_000, 50_000),
        {"max_sessions": 120, "sessions_at_once": 20},
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator headroom", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with traces/ and text/ (default: %(default)s)")
    parser.add_argument("--only-mooncake", action="store_true", help="leave the other traces out")
    parser.add_argument("--enforce", action="store_true", help="fail where a target is not reached")
    arguments = parser.parse_args(argv)
    trace = load_trace(arguments.data / "traces" / "mooncake_conversation_trace.jsonl.gz")
    record: dict[str, object] = {}
    verdicts = [*_reference_table(trace, record)]
    _shares(trace, record)
    if not arguments.only_mooncake:
        verdicts += _other_traces(arguments.data, record)
    show_verdicts(verdicts)
    write_results("simulator-headroom", {**record, "verdicts": [verdict.as_record() for verdict in verdicts]})
    return exit_code(verdicts, arguments.enforce)


def _ratio(hits: int | None, references: int) -> float:
    return (hits or 0) / references


def _reference_table(trace: BlockTrace, record: dict[str, object]) -> Iterator[Verdict]:
    rows, worst, lowest = [], 0.0, 1.0
    for capacity, expected in REFERENCE.items():
        progress(f"reference table, {capacity} blocks")
        got = [simulate(trace, capacity=capacity, evict=evict).hit_blocks for evict in ("fifo", "lfu", "lru")]
        greedy, bound = greedy_clairvoyant(trace, capacity=capacity), clairvoyant(trace, capacity=capacity)
        found = [_ratio(hits, trace.reference_count) for hits in (*got, greedy.hit_blocks, bound.hit_blocks)]
        worst = max(worst, *(abs(ours - theirs) for ours, theirs in zip(found[:3], expected[:3], strict=True)))
        lowest = min(lowest, found[4] - expected[3])
        rows.append(
            (f"{capacity:,}", *(f"{x:.4f} ({y:.4f})" for x, y in zip(found, expected, strict=False)), f"{found[4]:.4f}")
        )
    title = (
        f"{trace.name}: hit blocks / {trace.reference_count:,} blocks, ours (reference); "
        f"ceiling {infinite(trace).hit_ratio:.4f}"
    )
    show_table(title, ("blocks", "FIFO", "LFU", "LRU", "greedy clairvoyant", "clairvoyant bound"), rows)
    record["reference_table"] = rows
    yield Verdict("FIFO, LFU, LRU: largest distance from the reference", "<=", 0.002, worst)
    yield Verdict("clairvoyant bound less greedy reference, smallest", ">=", -0.00005, lowest)


def _shares(trace: BlockTrace, record: dict[str, object]) -> None:
    """Share of the headroom: (policy - LRU) / (bound - LRU), in hit blocks."""
    rows = []
    for capacity in HEADROOM_BLOCKS:
        lru, bound = simulate(trace, capacity=capacity), clairvoyant(trace, capacity=capacity)
        for evict in (*RIVALS, OURS):
            progress(f"{evict}, {capacity} blocks")
            found = simulate(trace, capacity=capacity, evict=evict)
            rows.append((f"{capacity:,}", evict, f"{found.hit_ratio:.4f}", _share(lru, found, bound)))
    show_table("Share of the LRU-to-clairvoyant headroom", ("blocks", "policy", "hit ratio", "of the gap"), rows)
    record["shares"] = rows


def _share(lru: Replay, found: Replay, bound: Bound) -> str:
    gap = (bound.hit_blocks or 0) - lru.hit_blocks
    return f"{(found.hit_blocks - lru.hit_blocks) / gap:.1%}" if gap else "no gap"


def _other_traces(data: Path, record: dict[str, object]) -> Iterator[Verdict]:
    rows = []
    for other in OTHERS:
        trace = load_trace(data / other.file, options=other.options)
        worst = 0.0
        for capacity in other.capacities:
            progress(f"{other.name}, {capacity} blocks")
            lru = simulate(trace, capacity=capacity)
            bound = clairvoyant(trace, capacity=capacity)
            for admit in ("always", "score"):
                ours = simulate(trace, capacity=capacity, evict=OURS, admit=admit)
                change = _change(lru, ours)
                worst = min(worst, change)
                rows.append(
                    (
                        other.name,
                        f"{capacity:,}",
                        OURS if admit == "always" else f"{OURS}+{admit}",
                        f"{lru.hit_ratio:.4f}",
                        f"{ours.hit_ratio:.4f}",
                        f"{change:+.2%}",
                        f"{bound.hit_ratio:.4f}",
                        _share(lru, ours, bound),
                    )
                )
        yield Verdict(f"{OURS} against LRU on {other.name}, worst", ">=", -0.01, worst)
    show_table(
        "Ours beside LRU on other traces",
        ("trace", "blocks", "policy", "LRU", "ours", "change", "bound", "of the gap"),
        rows,
    )
    record["other_traces"] = rows


def _change(lru: Replay, ours: Replay) -> float:
    return (ours.hit_blocks - lru.hit_blocks) / max(1, lru.hit_blocks)
