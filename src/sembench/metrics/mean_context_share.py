"""How foreign the context of the planned tokens was when their KV was computed: the risk in reusing them."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, share
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _mean_share(rows: Sequence[RequestRow]) -> Figure | None:
    measured = [
        (row.plan.mean_context_share * row.plan.planned_tokens, row.plan.planned_tokens)
        for row in rows
        if row.plan is not None and row.plan.mean_context_share is not None
    ]
    return share(sum(weighted for weighted, _ in measured), sum(tokens for _, tokens in measured), len(measured))


METRIC = Metric(
    name="mean_context_share",
    unit="share",
    formula="mean over planned tokens of the share of preceding context that differs from the donor's",
    needs=(Needs.PLAN,),
    evidence=Evidence.OFFLINE,
    better="lower",
    measure=_mean_share,
)
