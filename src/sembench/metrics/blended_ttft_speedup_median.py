"""What the traffic as a whole gained: every clean pair, requests without reuse included."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs
from sembench.metrics.rows import RequestRow
from sembench.paired.clean import is_clean, pairs_of, speedup
from semblend.contract import Evidence


def _median(rows: Sequence[RequestRow]) -> Figure | None:
    ratios = [speedup(row) for row in pairs_of(rows) if is_clean(row) and not row.negative_control]
    return Figure(statistics.median(ratios), n=len(ratios)) if ratios else None


METRIC = Metric(
    name="blended_ttft_speedup_median",
    unit="ratio",
    formula="median of cold TTFT / warm TTFT over all clean pairs but negative controls",
    needs=(Needs.PAIRS,),
    evidence=Evidence.MEASURED_LIVE,
    better="higher",
    measure=_median,
)
