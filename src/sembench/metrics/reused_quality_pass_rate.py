"""How many answers kept their quality among those that reused: the only ones in which reuse could have spoilt it."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_requests
from sembench.paired.clean import is_reused
from semblend.contract import Evidence

METRIC = Metric(
    name="reused_quality_pass_rate",
    unit="share",
    formula="quality_pass_rate over requests whose reuse the backend confirmed",
    needs=(Needs.ANSWERS, Needs.BACKEND),
    evidence=Evidence.BACKEND_CONFIRMED,
    better="higher",
    measure=lambda rows: share_of_requests([row for row in rows if is_reused(row)], lambda row: row.quality_pass),
    companion="quality_pass_rate",
)
