"""How many requests really reused donor KV, by the backend's own word."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_requests
from sembench.paired.clean import is_reused
from semblend.contract import Evidence

METRIC = Metric(
    name="confirmed_reuse_rate_by_request",
    unit="share",
    formula="requests with at least one token the backend confirmed as reused / requests it reported on",
    needs=(Needs.BACKEND,),
    evidence=Evidence.BACKEND_CONFIRMED,
    better="higher",
    measure=lambda rows: share_of_requests(rows, is_reused),
)
