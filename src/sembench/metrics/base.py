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
    PLAN = "a plan"
    BOTH_PLANS = "plans with and without embedder"
    EDITS = "edit positions in the manifest"
    BACKEND = "the backend's report"
    ROUTE = "route metadata"
    ANSWERS = "answers"
    LIVE = "a live request"
    PAIRS = "cold and warm arm of the same request"
    PROBE = "a probe after the request"


@dataclass(frozen=True, slots=True)
class Figure:
    """A value; for rates also numerator and denominator. ``n`` is the number of requests behind it."""

    value: float
    numerator: float | None = None
    denominator: float | None = None
    n: int | None = None


Unit = Literal["share", "blocks", "tokens", "requests", "ms", "ratio"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """``measure`` returns None when none of the evidence it needs was recorded. None is not 0.

    ``companion`` names the metric that must be shown next to this one: a figure over requests with reuse says nothing
    about the traffic they were selected from.
    """

    name: str
    unit: Unit
    formula: str
    needs: tuple[Needs, ...]
    evidence: Evidence
    better: Literal["higher", "lower", "neither"]
    measure: Callable[[Sequence[RequestRow]], Figure | None]
    companion: str | None = None


def fraction(numerator: float, denominator: float, n: int | None = None) -> Figure | None:
    """None if the denominator is 0: a rate over nothing has no value."""
    return Figure(numerator / denominator, numerator, denominator, n) if denominator else None


def total(values: Iterable[float | None]) -> Figure | None:
    """The sum of the measured values, None if there are none."""
    measured = [value for value in values if value is not None]
    return Figure(sum(measured), n=len(measured)) if measured else None


def mean(values: Iterable[float | None]) -> Figure | None:
    """The mean of the measured values; its parts are their sum and their number."""
    measured = [value for value in values if value is not None]
    return fraction(math.fsum(measured), len(measured), len(measured))


def ratio_of_sums(
    rows: Iterable[RequestRow], parts: Callable[[RequestRow], tuple[float, float] | None]
) -> Figure | None:
    """``parts`` gives numerator and denominator of one row, or None for a row in which they were not measured."""
    measured = [found for row in rows if (found := parts(row)) is not None]
    return fraction(sum(top for top, _ in measured), sum(bottom for _, bottom in measured), len(measured))


def fraction_of_blocks(rows: Iterable[RequestRow], count: Callable[[RequestRow], int | None]) -> Figure | None:
    """Counted blocks over all blocks of the rows in which the count was measured."""
    return ratio_of_sums(rows, lambda row: None if (blocks := count(row)) is None else (blocks, row.total_blocks))


def fraction_of_tokens(rows: Iterable[RequestRow], count: Callable[[RequestRow], int | None]) -> Figure | None:
    """Counted tokens over the prompt tokens of the rows in which the count was measured."""
    return ratio_of_sums(rows, lambda row: None if (tokens := count(row)) is None else (tokens, row.prompt_tokens))


def fraction_of_requests(rows: Iterable[RequestRow], holds: Callable[[RequestRow], bool | None]) -> Figure | None:
    measured = [held for row in rows if (held := holds(row)) is not None]
    return fraction(sum(measured), len(measured), len(measured))


def percentile(values: Iterable[float], percent: float) -> Figure | None:
    """Nearest rank: always a value that occurred, never an interpolated one."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Figure(ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)], n=len(ordered))
