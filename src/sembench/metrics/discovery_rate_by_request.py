"""How many requests resemble a donor without permission to load anything from the resemblance."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_requests
from semblend.contract import Evidence

METRIC = Metric(
    name="discovery_rate_by_request",
    unit="share",
    formula="requests with at least one similarity discovery / requests asked about",
    needs=(Needs.PLAN,),
    evidence=Evidence.OFFLINE,
    better="neither",
    measure=lambda rows: share_of_requests(rows, lambda row: row.plan.discoveries > 0 if row.plan else None),
)
