"""How many tokens the recipients have."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, total
from semblend.contract import Evidence

METRIC = Metric(
    name="prompt_tokens",
    unit="tokens",
    formula="sum of recipient tokens",
    needs=(Needs.TOKENS,),
    evidence=Evidence.OFFLINE,
    better="neither",
    measure=lambda rows: total(row.prompt_tokens for row in rows),
)
