"""Cold arms compared with those of a server without connector, to detect a connector that slows down misses."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sembench.gates.other_run import OtherRun, mismatches
from sembench.gates.verdict import Measured, Verdict
from sembench.metrics.rows import RequestRow, is_contaminated, is_reused, timed
from sembench.paired import median_interval

GATE: Final = "max_cold_arm_overhead"
METRIC: Final = "cold_arm_overhead_median"
_SAME: Final = ("model", "endpoint", "block_size", "recipient_max_tokens", "top_logprobs", "concurrency")


def judge_stock(
    verdict: Verdict, result: Mapping[str, Any], rows: Sequence[RequestRow], stock: OtherRun | None
) -> None:
    """Median ratio of this server's cold TTFT to the stock server's, over the common items (``n`` of them)."""
    if stock is not None:
        for message in _mismatches(result, stock):
            verdict.fail("stock_result", METRIC, "a stock run of the same requests", message)
    if stock is None and GATE not in verdict.request.requested:
        return
    ratios = [] if stock is None else _ratios(rows, stock.rows)
    seed = result["run"].get("seed")
    interval = median_interval(ratios, seed if type(seed) is int else 0)
    found = Measured(
        statistics.median(ratios) if ratios else None,
        n=len(ratios),
        ci95=None if interval is None else (interval[0], interval[1]),
    )
    verdict.observed |= {METRIC: found.value, "cold_arm_overhead_ci95": interval, "cold_arm_overhead_n": len(ratios)}
    verdict.judge_ratio(GATE, found)


def _ratios(rows: Sequence[RequestRow], stock: Sequence[RequestRow]) -> list[float]:
    theirs = {row.item_id: row for row in stock}
    pairs = ((_cold_ms(row), _cold_ms(theirs[row.item_id])) for row in rows if row.item_id in theirs)
    return [ours / other for ours, other in pairs if ours is not None and other is not None]


def _cold_ms(row: RequestRow) -> float | None:
    return None if is_contaminated(row) else timed(row.cold)


def _mismatches(result: Mapping[str, Any], stock: OtherRun) -> Iterator[str]:
    yield from mismatches(result, stock, "stock", _SAME)
    if reported := [row.item_id for row in stock.rows if is_reused(row) is not None]:
        yield f"the stock server has a connector: it reports on {len(reported)} requests ({reported[0]} first)"
