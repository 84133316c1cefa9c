"""What the embedder adds to the candidate blocks that the token path finds alone."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, total
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _extra(rows: Sequence[RequestRow]) -> Figure | None:
    return total(
        row.plan.candidate_blocks - row.token_plan.candidate_blocks
        for row in rows
        if row.plan is not None and row.token_plan is not None
    )


METRIC = Metric(
    name="semantic_path_extra_candidate_blocks",
    unit="blocks",
    formula="candidate blocks with the embedder - candidate blocks without it, over requests asked both ways",
    needs=(Needs.BOTH_PLANS,),
    evidence=Evidence.OFFLINE,
    better="higher",
    measure=_extra,
)
