"""What the requests gained that reused something. Never shown without the blended figure: it picks its own traffic."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs
from sembench.metrics.rows import RequestRow
from sembench.paired.clean import is_clean, is_reused, pairs_of, speedup
from semblend.contract import Evidence


def _median(rows: Sequence[RequestRow]) -> Figure | None:
    positive = [row for row in pairs_of(rows) if is_clean(row) and not row.negative_control]
    ratios = [speedup(row) for row in positive if is_reused(row)]
    return Figure(statistics.median(ratios), n=len(ratios)) if ratios else None


METRIC = Metric(
    name="hit_only_ttft_speedup_median",
    unit="ratio",
    formula="median of cold TTFT / warm TTFT over clean pairs whose reuse the backend confirmed, negatives excepted",
    needs=(Needs.PAIRS, Needs.BACKEND),
    evidence=Evidence.BACKEND_CONFIRMED,
    better="higher",
    measure=_median,
    companion="blended_ttft_speedup_median",
)
