"""How many requests get a plan at all."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_requests
from semblend.contract import Evidence

METRIC = Metric(
    name="plan_rate_by_request",
    unit="share",
    formula="requests with at least one planned token / requests asked about",
    needs=(Needs.PLAN,),
    evidence=Evidence.OFFLINE,
    better="higher",
    measure=lambda rows: share_of_requests(rows, lambda row: row.plan.planned_tokens > 0 if row.plan else None),
)
