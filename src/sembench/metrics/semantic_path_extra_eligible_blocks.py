"""What the embedder adds to the eligible blocks that the token path finds alone."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, total
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _extra(rows: Sequence[RequestRow]) -> Figure | None:
    return total(
        row.plan.eligible_blocks - row.token_plan.eligible_blocks
        for row in rows
        if row.plan is not None and row.token_plan is not None
    )


METRIC = Metric(
    name="semantic_path_extra_eligible_blocks",
    unit="blocks",
    formula="eligible blocks with the embedder - eligible blocks without it, over requests asked both ways",
    needs=(Needs.BOTH_PLANS,),
    evidence=Evidence.OFFLINE,
    better="higher",
    measure=_extra,
)
