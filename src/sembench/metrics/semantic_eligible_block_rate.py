"""How much of the proposal a backend could load block by block."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_blocks
from semblend.contract import Evidence

METRIC = Metric(
    name="semantic_eligible_block_rate",
    unit="share",
    formula="candidate blocks from one donor at consecutive positions / total_blocks",
    needs=(Needs.PLAN,),
    evidence=Evidence.OFFLINE,
    better="higher",
    measure=lambda rows: share_of_blocks(rows, lambda row: row.plan.eligible_blocks if row.plan else None),
)
