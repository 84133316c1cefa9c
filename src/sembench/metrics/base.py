"""What a metric is: a name, a unit, a formula in words, the evidence it needs, and the function that computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence


class Needs(StrEnum):
    """What must have been recorded before a metric has a value."""

    TOKENS = "recipient and donor tokens"
    PLAN = "the planner's answer"
    BOTH_PLANS = "the planner's answer with and without embedder"
    EDITS = "edit positions of the manifest"
    BACKEND = "the backend's report"
    ROUTE = "route metadata"
    ANSWERS = "answers"


@dataclass(frozen=True, slots=True)
class Figure:
    """A value and, for rates, what was divided by what."""

    value: float
    numerator: float | None = None
    denominator: float | None = None


Unit = Literal["share", "blocks", "tokens", "requests", "ms"]


@dataclass(frozen=True, slots=True)
class Metric:
    """``measure`` returns None when nothing of what it needs was recorded. None is not 0."""

    name: str
    unit: Unit
    formula: str
    needs: tuple[Needs, ...]
    evidence: Evidence
    better: Literal["higher", "lower", "neither"]
    measure: Callable[[Sequence[RequestRow]], Figure | None]


def share(numerator: float, denominator: float) -> Figure | None:
    """A rate over nothing has no value."""
    return Figure(numerator / denominator, numerator, denominator) if denominator else None


def total(values: Iterable[float | None]) -> Figure | None:
    """The sum of what was measured, None if nothing was."""
    measured = [value for value in values if value is not None]
    return Figure(sum(measured)) if measured else None


def share_of_blocks(rows: Iterable[RequestRow], count: Callable[[RequestRow], int | None]) -> Figure | None:
    """Counted blocks over the blocks of exactly those rows in which the count was measured."""
    measured = [(counted, row.total_blocks) for row in rows if (counted := count(row)) is not None]
    return share(sum(counted for counted, _ in measured), sum(blocks for _, blocks in measured))


def share_of_requests(rows: Sequence[RequestRow], holds: Callable[[RequestRow], bool | None]) -> Figure | None:
    measured = [held for row in rows if (held := holds(row)) is not None]
    return share(sum(measured), len(measured))
