"""What a prefix cache, the engine's own, could really serve."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_blocks
from semblend.contract import Evidence

METRIC = Metric(
    name="exact_prefix_block_rate",
    unit="share",
    formula="recipient blocks in the longest unbroken prefix shared with one donor / total_blocks",
    needs=(Needs.TOKENS,),
    evidence=Evidence.OFFLINE,
    better="neither",
    measure=lambda rows: share_of_blocks(rows, lambda row: row.exact_prefix_blocks),
)
