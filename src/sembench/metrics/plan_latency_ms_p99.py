"""How long the planner takes on this machine: a slow request."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs
from sembench.metrics.percentile import percentile
from semblend.contract import Evidence

METRIC = Metric(
    name="plan_latency_ms_p99",
    unit="ms",
    formula="99th percentile (nearest rank) of the planner's time per request",
    needs=(Needs.PLAN,),
    evidence=Evidence.OFFLINE,
    better="lower",
    measure=lambda rows: percentile((row.plan.plan_ms for row in rows if row.plan), 99),
)
