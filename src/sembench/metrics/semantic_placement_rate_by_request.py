"""How many requests the router placed by resemblance. Placement is not reuse."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_requests
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence, Outcome


def _placed(row: RequestRow) -> bool | None:
    return None if row.route_outcome is None else row.route_outcome == Outcome.SEMANTIC_PLACEMENT


METRIC = Metric(
    name="semantic_placement_rate_by_request",
    unit="share",
    formula="requests whose route outcome is semantic_placement / requests with route metadata",
    needs=(Needs.ROUTE,),
    evidence=Evidence.MEASURED_LIVE,
    better="higher",
    measure=lambda rows: share_of_requests(rows, _placed),
)
