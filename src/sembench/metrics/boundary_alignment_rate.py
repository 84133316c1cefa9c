"""M1: whether a load began where the engine's own prefix ended. The client's usage figures are the second witness."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_requests
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _aligned(row: RequestRow) -> bool | None:
    backend, warm = row.backend, row.warm
    if backend is None or warm is None or not backend.reused_tokens:
        return None
    if backend.boundary is None or warm.cached_tokens is None:
        return None
    return backend.boundary == warm.cached_tokens - backend.reused_tokens


METRIC = Metric(
    name="boundary_alignment_rate",
    unit="share",
    formula="M1: requests whose audited boundary equals cached tokens of the usage - reused tokens / requests with "
    "confirmed reuse, a boundary and cached tokens",
    needs=(Needs.BACKEND, Needs.LIVE),
    evidence=Evidence.BACKEND_CONFIRMED,
    better="higher",
    measure=lambda rows: share_of_requests(rows, _aligned),
)
