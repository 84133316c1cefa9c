"""The figures that must be zero, in one place: ``run-offline`` prints them, ``assert-result-gates`` judges them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sembench.metrics import METRICS
from sembench.metrics.base import Figure
from sembench.metrics.rows import RequestRow

CROSS_TENANT: Final = "cross_tenant_planned_requests"
CONFIRMED_NEGATIVES: Final = "negative_control_backend_confirmed_rate"


@dataclass(frozen=True, slots=True)
class ZeroCheck:
    """``measure`` returns None when nothing was recorded that could show it: then it was not checked."""

    name: str
    title: str
    is_rate: bool
    measure: Callable[[Sequence[RequestRow]], Figure | None]


def planned_from_another_tenant(rows: Sequence[RequestRow]) -> list[RequestRow]:
    return [row for row in _cross_tenant(rows) if row.plan and row.plan.planned_tokens]


def _cross_tenant(rows: Sequence[RequestRow]) -> list[RequestRow]:
    return [row for row in rows if row.transform == "cross_tenant" and row.plan is not None]


def _count_leaks(rows: Sequence[RequestRow]) -> Figure | None:
    asked, leaks = len(_cross_tenant(rows)), len(planned_from_another_tenant(rows))
    return Figure(leaks, leaks, asked) if asked else None


def _metric(name: str, title: str) -> ZeroCheck:
    return ZeroCheck(name, title, True, lambda rows: METRICS.get(name).measure(rows))


MUST_BE_ZERO: Final = (
    _metric("unverified_planned_token_rate", "planned tokens that are not the donor's"),
    _metric("changed_token_planned_rate", "changed facts planned (hard negatives)"),
    _metric("negative_control_semantic_eligible_block_rate", "negative controls: eligible blocks"),
    ZeroCheck(CROSS_TENANT, "requests planned from another tenant", False, _count_leaks),
    _metric(CONFIRMED_NEGATIVES, "negative controls: blocks the backend confirmed"),
)
