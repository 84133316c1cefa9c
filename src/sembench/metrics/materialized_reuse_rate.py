"""M2 by requests: promised loads that were kept."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_requests
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _kept(row: RequestRow) -> bool | None:
    if row.backend is None or not row.backend.advertised_tokens:
        return None
    return bool(row.backend.reused_tokens)


METRIC = Metric(
    name="materialized_reuse_rate",
    unit="share",
    formula="M2: requests with confirmed reuse / requests for which the adapter advertised a load",
    needs=(Needs.BACKEND,),
    evidence=Evidence.BACKEND_CONFIRMED,
    better="higher",
    measure=lambda rows: share_of_requests(rows, _kept),
)
