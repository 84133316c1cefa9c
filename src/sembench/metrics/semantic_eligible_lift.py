"""What the planner finds beyond position-free exact blocks. Not yet reuse."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, share
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _lift(rows: Sequence[RequestRow]) -> Figure | None:
    measured = [
        (row.plan.eligible_blocks - row.exact_hit_blocks, row.total_blocks)
        for row in rows
        if row.plan is not None and row.exact_hit_blocks is not None
    ]
    return share(sum(gain for gain, _ in measured), sum(blocks for _, blocks in measured), len(measured))


METRIC = Metric(
    name="semantic_eligible_lift",
    unit="share",
    formula="(semantic eligible blocks - exact hit blocks) / total_blocks, over requests with both",
    needs=(
        Needs.TOKENS,
        Needs.PLAN,
    ),
    evidence=Evidence.OFFLINE,
    better="higher",
    measure=_lift,
)
