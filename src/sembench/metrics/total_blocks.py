"""How many full blocks the recipients have: the denominator of every block rate."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, total
from semblend.contract import Evidence

METRIC = Metric(
    name="total_blocks",
    unit="blocks",
    formula="sum of floor(recipient tokens / block size)",
    needs=(Needs.TOKENS,),
    evidence=Evidence.OFFLINE,
    better="neither",
    measure=lambda rows: total(row.total_blocks for row in rows),
)
