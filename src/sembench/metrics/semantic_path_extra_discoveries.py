"""Requests for which only the embedder points at a donor."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, total
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _extra(rows: Sequence[RequestRow]) -> Figure | None:
    return total(
        int(row.plan.discoveries > 0 and row.token_plan.discoveries == 0)
        for row in rows
        if row.plan is not None and row.token_plan is not None
    )


METRIC = Metric(
    name="semantic_path_extra_discoveries",
    unit="requests",
    formula="requests with a discovery with the embedder and none without it",
    needs=(Needs.BOTH_PLANS,),
    evidence=Evidence.OFFLINE,
    better="neither",
    measure=_extra,
)
