"""What a cache of blocks would know if position did not matter."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_blocks
from semblend.contract import Evidence

METRIC = Metric(
    name="exact_block_hit_rate",
    unit="share",
    formula="full recipient blocks whose tokens are a full block of the donor pool / total_blocks",
    needs=(Needs.TOKENS,),
    evidence=Evidence.OFFLINE,
    better="neither",
    measure=lambda rows: share_of_blocks(rows, lambda row: row.exact_hit_blocks),
)
