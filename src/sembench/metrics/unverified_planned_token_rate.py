"""Planned tokens that are not the donor's: the bench compares every planned position itself. Must be 0."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.metrics.base import Figure, Metric, Needs, share
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


def _unverified(rows: Sequence[RequestRow]) -> Figure | None:
    plans = [row.plan for row in rows if row.plan is not None]
    wrong = sum(plan.unverified_tokens for plan in plans)
    return share(wrong, wrong + sum(plan.planned_tokens for plan in plans), len(plans))


METRIC = Metric(
    name="unverified_planned_token_rate",
    unit="share",
    formula="planned positions whose donor token differs from the recipient's / planned positions",
    needs=(
        Needs.TOKENS,
        Needs.PLAN,
    ),
    evidence=Evidence.OFFLINE,
    better="lower",
    measure=_unverified,
)
