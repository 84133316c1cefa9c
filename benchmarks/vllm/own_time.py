"""Direct accounting: the milliseconds our own hooks take per request, and the cold time to first token.

Comparing servers needs hundreds of requests to see two percent on a shared machine; a clock on our own code sees it in
twenty. What it cannot see is what the engine does because a connector is there (passing metadata between processes).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.console import progress, show_table
from benchmarks.targets import Verdict
from benchmarks.vllm.client import Ask
from benchmarks.vllm.hook_sums import ROLES, read_sums, sums_path
from benchmarks.vllm.servers import Subject
from benchmarks.vllm.workload import SAME_DOCUMENT, SIZES, Workload

ANSWER_TOKENS = 8
FILLED_DONORS = 6
WAIT_S = 1.5
MISS, CAPTURE = "miss", "capture"
AFTER_FIRST_TOKEN = frozenset({"wait_for_save", "request_finished", "has_pending_block_frees"})


@dataclass(frozen=True, slots=True)
class OwnTime:
    """Means per request. ``before_ms`` may delay the first token, ``all_ms`` is the total."""

    size: str
    arm: str
    n: int
    cold_ms: float
    before_ms: float
    all_ms: float
    hooks: dict[str, float]


def run(subject: Subject, workload: Workload, sizes: Sequence[str], n: int, events: Path) -> list[OwnTime]:
    assert all(sums_path(events, role).exists() for role in ROLES), "the server has no clock on its hooks"
    for number in range(FILLED_DONORS):
        item = workload.make(sizes[0], SAME_DOCUMENT, number)
        subject.client.whole(Ask(item.donors[0], 1, MISS, reuse=False, capture=True))
    rows = []
    for size in sizes:
        for arm in (MISS, CAPTURE):
            rows.append(_account(subject, workload, size, arm, n, events))
            progress(f"own time: {size} {arm} done")
    return rows


def _account(subject: Subject, workload: Workload, size: str, arm: str, n: int, events: Path) -> OwnTime:
    times = []
    time.sleep(WAIT_S)
    before = read_sums(events)
    for number in range(n):
        subject.client.reset_exact_cache()
        prompt = workload.unrelated(SIZES[size], number)
        salt = MISS if arm == MISS else f"own-{size}-{number}"  # a captured prompt is not a donor of any other request
        times.append(subject.client.timed(Ask(prompt, ANSWER_TOKENS, salt, capture=arm == CAPTURE)).first_token_ms)
    time.sleep(WAIT_S)
    spent = {hook: (value - before.get(hook, 0.0)) / n for hook, value in read_sums(events).items()}
    early = sum(value for hook, value in spent.items() if hook not in AFTER_FIRST_TOKEN)
    hooks = {hook: round(spent[hook], 4) for hook in sorted(spent, key=lambda hook: -spent[hook])}
    return OwnTime(size, arm, n, float(np.median(times)), early, float(sum(spent.values())), hooks)


def show(rows: Sequence[OwnTime]) -> None:
    table = [
        (
            row.size,
            row.arm,
            row.n,
            f"{row.cold_ms:.0f}",
            f"{row.before_ms:.2f} ({row.before_ms / row.cold_ms:.2%})",
            f"{row.all_ms:.2f} ({row.all_ms / row.cold_ms:.2%})",
            ", ".join(f"{hook} {value:.2f}" for hook, value in list(row.hooks.items())[:3]),
        )
        for row in rows
    ]
    columns = ("size", "arm", "n", "cold TTFT ms", "own ms before the first token", "own ms in all", "largest hooks")
    show_table("Time in our own code per request (mean; fraction of the median cold TTFT)", columns, table)


def verdicts(rows: Sequence[OwnTime]) -> list[Verdict]:
    def worst(arm: str, whole: bool) -> float | None:
        shares = [(row.all_ms if whole else row.before_ms) / row.cold_ms * 100 for row in rows if row.arm == arm]
        return max(shares, default=None)

    return [
        Verdict("our own code in a miss, of cold TTFT", "<=", 2.0, worst(MISS, False), "%"),
        Verdict("our own code in a capture, all of it, of cold TTFT", "<=", 5.0, worst(CAPTURE, True), "%"),
    ]


def as_record(rows: Sequence[OwnTime]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
