"""How many answers kept their quality."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_requests
from semblend.contract import Evidence

METRIC = Metric(
    name="quality_pass_rate",
    unit="share",
    formula="requests whose answer reaches the quality threshold / requests with a scored answer",
    needs=(Needs.ANSWERS,),
    evidence=Evidence.MEASURED_LIVE,
    better="higher",
    measure=lambda rows: share_of_requests(rows, lambda row: row.quality_pass),
)
