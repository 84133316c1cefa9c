"""What a live backend itself reported as reused: the only figure that may be called reuse."""

from __future__ import annotations

from sembench.metrics.base import Metric, Needs, share_of_blocks
from semblend.contract import Evidence

METRIC = Metric(
    name="backend_confirmed_block_rate",
    unit="share",
    formula="blocks the backend reported as reused / blocks of the requests it reported on; None if it never reported",
    needs=(Needs.BACKEND,),
    evidence=Evidence.BACKEND_CONFIRMED,
    better="higher",
    measure=lambda rows: share_of_blocks(rows, lambda row: row.backend_confirmed_blocks),
)
