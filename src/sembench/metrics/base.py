"""What a metric is: a name, a unit, a formula in words, the evidence it needs, and the function that computes it."""

from __future__ import annotations

import math
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
    LIVE = "a live request"
    PAIRS = "cold and warm arm of the same request"
    PROBE = "a probe after the request"


@dataclass(frozen=True, slots=True)
class Figure:
    """A value, for rates what was divided by what, and ``n``: on how many requests it rests."""

    value: float
    numerator: float | None = None
    denominator: float | None = None
    n: int | None = None


Unit = Literal["share", "blocks", "tokens", "requests", "ms", "ratio"]


@dataclass(frozen=True, slots=True)
class Metric:
    """``measure`` returns None when nothing of what it needs was recorded. None is not 0.

    ``companion`` is the metric without which this one may not be shown: a figure of the requests that reused says
    nothing about the traffic it was picked from.
    """

    name: str
    unit: Unit
    formula: str
    needs: tuple[Needs, ...]
    evidence: Evidence
    better: Literal["higher", "lower", "neither"]
    measure: Callable[[Sequence[RequestRow]], Figure | None]
    companion: str | None = None


def share(numerator: float, denominator: float, n: int | None = None) -> Figure | None:
    """A rate over nothing has no value."""
    return Figure(numerator / denominator, numerator, denominator, n) if denominator else None


def total(values: Iterable[float | None]) -> Figure | None:
    """The sum of what was measured, None if nothing was."""
    measured = [value for value in values if value is not None]
    return Figure(sum(measured), n=len(measured)) if measured else None


def share_of_blocks(rows: Iterable[RequestRow], count: Callable[[RequestRow], int | None]) -> Figure | None:
    """Counted blocks over the blocks of exactly those rows in which the count was measured."""
    measured = [(counted, row.total_blocks) for row in rows if (counted := count(row)) is not None]
    return share(sum(counted for counted, _ in measured), sum(blocks for _, blocks in measured), len(measured))


def share_of_requests(rows: Sequence[RequestRow], holds: Callable[[RequestRow], bool | None]) -> Figure | None:
    measured = [held for row in rows if (held := holds(row)) is not None]
    return share(sum(measured), len(measured), len(measured))


def mean(values: Iterable[float | None]) -> Figure | None:
    """Over what was measured; the parts are the sum and the number of values."""
    measured = [value for value in values if value is not None]
    return share(math.fsum(measured), len(measured), len(measured))
