"""The figures that must be zero, in one place: the runners print them, ``assert-result-gates`` judges them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sembench.metrics import METRICS
from sembench.metrics.base import Figure
from sembench.metrics.rows import RequestRow, is_reused

CONFIRMED_NEGATIVES: Final = "negative_control_backend_confirmed_rate"
REUSING_NEGATIVES: Final = "negative_control_confirmed_reuse_rate"


@dataclass(frozen=True, slots=True)
class ZeroCheck:
    """``measure`` returns None when the evidence was not recorded; then it was not checked."""

    name: str
    title: str
    is_rate: bool
    measure: Callable[[Sequence[RequestRow]], Figure | None]
    culprits: Callable[[Sequence[RequestRow]], list[RequestRow]] | None = None

    def first_culprit(self, rows: Sequence[RequestRow]) -> str:
        found = self.culprits(rows) if self.culprits is not None else []
        return f"; {found[0].item_id} first" if found else ""


def _metric(name: str, title: str) -> ZeroCheck:
    return ZeroCheck(name, title, True, lambda rows: METRICS.get(name).measure(rows))


def _cross_tenant(name: str, title: str, leaks: Callable[[RequestRow], bool | None]) -> ZeroCheck:
    """Counts requests of another tenant for which ``leaks`` is true; it is None where that was not recorded."""

    def of_other_tenant(rows: Sequence[RequestRow]) -> list[RequestRow]:
        return [row for row in rows if row.transform == "cross_tenant" and leaks(row) is not None]

    def culprits(rows: Sequence[RequestRow]) -> list[RequestRow]:
        return [row for row in of_other_tenant(rows) if leaks(row)]

    def measure(rows: Sequence[RequestRow]) -> Figure | None:
        checked, found = len(of_other_tenant(rows)), len(culprits(rows))
        return Figure(found, found, checked, checked) if checked else None

    return ZeroCheck(name, title, False, measure, culprits)


MUST_BE_ZERO: Final = (
    _metric("unverified_planned_token_rate", "planned tokens that are not the donor's"),
    _metric("changed_token_planned_rate", "changed facts planned (hard negatives)"),
    _metric("negative_control_semantic_eligible_block_rate", "negative controls: eligible blocks"),
    _cross_tenant(
        "cross_tenant_planned_requests",
        "requests planned from another tenant",
        lambda row: None if row.plan is None else row.plan.planned_tokens > 0,
    ),
    _metric(CONFIRMED_NEGATIVES, "negative controls: blocks the backend confirmed"),
    _metric(REUSING_NEGATIVES, "negative controls: requests with confirmed reuse"),
    _cross_tenant("cross_tenant_reused_requests", "requests that reused another tenant's KV", is_reused),
    _metric("propagation_contamination_rate", "probes served loaded KV as if it were exact"),
)
