"""What the connector costs when it does not help: a miss, a captured donor, and the request right after a capture.

A server with the connector and a stock one run on the same cores; only one receives requests at a time, and the other
is stopped meanwhile, because an idle engine spins. Every item goes through all arms, in rotating order; figures are
ratios within an item.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.console import progress, show_table
from benchmarks.estimates import Interval, Quartiles, median_interval
from benchmarks.targets import Verdict
from benchmarks.vllm.client import Ask, Reply
from benchmarks.vllm.servers import Subject, stopped
from benchmarks.vllm.texts import TokenIds
from benchmarks.vllm.workload import SAME_DOCUMENT, SIZES, Workload

ANSWER_TOKENS = 8
FILLED_DONORS = 6
MISS_SALT = "miss"
DONOR_TIMEOUT_S = 20.0
WIDEST_INTERVAL = 0.10  # of a ratio: a limit of a few percent cannot be checked with more noise than that
STOCK, SWITCHED_OFF, MISS, CAPTURE, AFTER = "stock", "switched off", "miss", "capture", "after a capture"
RATIOS = ((SWITCHED_OFF, STOCK), (MISS, STOCK), (MISS, SWITCHED_OFF), (CAPTURE, MISS), (AFTER, MISS))


@dataclass(slots=True)
class Costs:
    """Milliseconds of one item by arm. ``reason`` is the decline reason of the miss."""

    size: str
    first_ms: dict[str, float] = field(default_factory=dict)
    total_ms: dict[str, float] = field(default_factory=dict)
    reason: str | None = None
    is_clean: bool = True


class Overhead:
    def __init__(self, subject: Subject, bare: Subject, workload: Workload) -> None:
        self._subject, self._bare, self._workload = subject, bare, workload

    def run(self, sizes: Sequence[str], n: int) -> list[Costs]:
        self._fill(sizes)
        rows = []
        for number in range(n):
            for size in sizes:
                rows.append(self._measure(size, number))
            progress(f"overhead: {number + 1} of {n} items per size")
        return rows

    def _fill(self, sizes: Sequence[str]) -> None:
        """A miss among donors, not in an empty store."""
        for number in range(FILLED_DONORS):
            item = self._workload.make(sizes[0], SAME_DOCUMENT, number)
            self._captured(self._subject.client.whole(Ask(item.donors[0], 1, MISS_SALT, reuse=False, capture=True)))

    def _measure(self, size: str, number: int) -> Costs:
        prompt = self._workload.unrelated(SIZES[size], number)
        row = Costs(size)
        steps: list[Callable[[], object]] = [
            lambda: self._time(row, STOCK, self._bare, Ask(prompt, ANSWER_TOKENS, MISS_SALT)),
            lambda: self._time(row, SWITCHED_OFF, self._subject, Ask(prompt, ANSWER_TOKENS, MISS_SALT, reuse=False)),
            lambda: self._miss(row, prompt),
            lambda: self._capture(row, prompt, number),
        ]
        first = number % len(steps)
        for step in steps[first:] + steps[:first]:
            step()
        return row

    def _time(self, row: Costs, arm: str, subject: Subject, ask: Ask) -> Reply:
        other = self._subject if subject is self._bare else self._bare
        with stopped(other):
            subject.client.reset_exact_cache()
            reply = subject.client.timed(ask)
        row.first_ms[arm], row.total_ms[arm] = reply.first_token_ms, reply.total_ms
        row.is_clean &= reply.cached_tokens == 0
        return reply

    def _miss(self, row: Costs, prompt: TokenIds) -> None:
        reply = self._time(row, MISS, self._subject, Ask(prompt, ANSWER_TOKENS, MISS_SALT))
        assert self._subject.happenings is not None
        row.reason = self._subject.happenings.result(reply.request_id).reason

    def _capture(self, row: Costs, prompt: TokenIds, number: int) -> None:
        """The captured prompt gets a salt of its own: it is not a donor of any other request. The next request follows
        at once.
        """
        salt = f"captured-{row.size}-{number}"
        reply = self._time(row, CAPTURE, self._subject, Ask(prompt, ANSWER_TOKENS, salt, capture=True))
        self._time(row, AFTER, self._subject, Ask(prompt, ANSWER_TOKENS, MISS_SALT))
        self._captured(reply)

    def _captured(self, reply: Reply) -> None:
        assert self._subject.happenings is not None
        poke = Ask(range(50, 58), 1, "poke", reuse=False)
        found = self._subject.happenings.wait_for_donor(
            reply.request_id, lambda: self._subject.client.whole(poke), DONOR_TIMEOUT_S
        )
        if not found:
            progress(f"overhead: donor {reply.request_id} never became findable")


def ratios(rows: Sequence[Costs], arm: str, base: str, size: str | None = None, *, total: bool = False) -> list[float]:
    chosen = [row for row in rows if row.is_clean and size in (None, row.size)]
    times = [row.total_ms if total else row.first_ms for row in chosen]
    return [time[arm] / time[base] for time in times if arm in time and base in time]


def show(rows: Sequence[Costs]) -> None:
    table = []
    for size in dict.fromkeys(row.size for row in rows):
        for arm, base in RATIOS:
            first, total = (median_interval(ratios(rows, arm, base, size, total=kind)) for kind in (False, True))
            spread = Quartiles.of(ratios(rows, arm, base, size))
            shown = [None if figure is None else figure.shown() for figure in (first, total)]
            table.append((size, f"{arm} / {base}", *shown, None if spread is None else spread.shown("{:.3f}")))
    columns = ("size", "ratio", "TTFT median [95 %]", f"total of {ANSWER_TOKENS} tokens [95 %]", "TTFT quartiles")
    show_table("Cost without gain (paired ratios)", columns, table)
    reasons = sorted({str(row.reason) for row in rows})
    progress(f"overhead: misses were {', '.join(reasons)}; {sum(not row.is_clean for row in rows)} rows not cold")


def verdicts(rows: Sequence[Costs]) -> list[Verdict]:
    miss = median_interval(ratios(rows, MISS, STOCK))
    capture = [median_interval(ratios(rows, CAPTURE, MISS, total=kind)) for kind in (False, True)]
    behind = median_interval(ratios(rows, AFTER, MISS))
    return [
        Verdict("miss against a stock server, TTFT", "<=", 2.0, percent(miss), "%"),
        Verdict("capture, TTFT", "<=", 5.0, percent(capture[0]), "%"),
        Verdict(f"capture, whole request of {ANSWER_TOKENS} tokens", "<=", 5.0, percent(capture[1]), "%"),
        Verdict("request right after a capture, TTFT", "<=", 5.0, percent(behind), "%"),
    ]


def percent(ratio: Interval | None) -> float | None:
    """A cost in percent; ``None`` when the interval is too wide to tell, in either direction."""
    if ratio is None or ratio.high - ratio.low > WIDEST_INTERVAL:
        return None
    return (ratio.estimate - 1.0) * 100.0


def as_record(rows: Sequence[Costs]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
