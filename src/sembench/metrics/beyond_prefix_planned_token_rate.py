"""What is planned for the part the engine's own prefix cache leaves cold: the planner's real job."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, share
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _beyond_prefix(rows: Sequence[RequestRow]) -> Figure | None:
    measured = [
        (row.plan_beyond_prefix_tokens, row.prompt_tokens - row.exact_prefix_tokens)
        for row in rows
        if row.plan_beyond_prefix_tokens is not None and row.exact_prefix_tokens is not None
    ]
    return share(sum(planned for planned, _ in measured), sum(cold for _, cold in measured), len(measured))


METRIC = Metric(
    name="beyond_prefix_planned_token_rate",
    unit="share",
    formula="planned tokens when the planner is told of the exact prefix / tokens behind the exact prefix",
    needs=(
        Needs.TOKENS,
        Needs.PLAN,
    ),
    evidence=Evidence.OFFLINE,
    better="higher",
    measure=_beyond_prefix,
)
