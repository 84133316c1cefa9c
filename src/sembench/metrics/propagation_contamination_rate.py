"""M7: whether loaded KV was later served to somebody as if it were exact. Must be 0."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_requests
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _spread(row: RequestRow) -> bool | None:
    if row.backend is None or row.backend.propagated_tokens is None:
        return None
    return row.backend.propagated_tokens > 0


METRIC = Metric(
    name="propagation_contamination_rate",
    unit="share",
    formula="M7: probes served cached tokens beyond their true exact prefix / probes",
    needs=(Needs.PROBE,),
    evidence=Evidence.MEASURED_LIVE,
    better="lower",
    measure=lambda rows: share_of_requests(rows, _spread),
)
