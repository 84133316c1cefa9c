"""How much the planner proposes, from however many donors."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_blocks
from semblend.contract import Evidence

METRIC = Metric(
    name="semantic_candidate_block_rate",
    unit="share",
    formula="full recipient blocks every position of which is proposed / total_blocks",
    needs=(Needs.PLAN,),
    evidence=Evidence.OFFLINE,
    better="higher",
    measure=lambda rows: share_of_blocks(rows, lambda row: row.plan.candidate_blocks if row.plan else None),
)
