"""B minus A over the shared items: rates and times with intervals (items are resampled together), and flips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from sembench.metrics.rows import RequestRow, is_clean, is_reused, speedup, timed
from sembench.report.estimates import Estimate, bootstrap, median_estimate

Twins = Sequence[tuple[RequestRow, RequestRow]]
Part = tuple[float, float]
"""What one row adds to a rate: numerator and denominator."""


@dataclass(frozen=True, slots=True)
class Rate:
    title: str
    part: Callable[[RequestRow], Part | None]


@dataclass(frozen=True, slots=True)
class RateDifference:
    """``a`` and ``b`` over the same items; all None if no item has the figure in both results."""

    title: str
    a: float | None
    b: float | None
    difference: Estimate | None


@dataclass(frozen=True, slots=True)
class Flip:
    kind: Literal["quality", "reuse"]
    a: RequestRow
    b: RequestRow
    gained: bool


def _blocks(count: int | None, row: RequestRow) -> Part | None:
    return None if count is None else (float(count), float(row.total_blocks))


def _held(value: bool | None) -> Part | None:
    return None if value is None else (float(value), 1.0)


def _flipped(row: RequestRow) -> bool | None:
    return row.pair.answer_flip if row.pair is not None else None


def _f1(row: RequestRow) -> Part | None:
    return None if row.warm is None or row.warm.f1 is None else (row.warm.f1, 1.0)


RATES: Final = (
    Rate("exact prefix blocks", lambda row: _blocks(row.exact_prefix_blocks, row)),
    Rate("eligible blocks (a plan)", lambda row: _blocks(row.plan.eligible_blocks if row.plan else None, row)),
    Rate("blocks confirmed as reused", lambda row: _blocks(row.backend_confirmed_blocks, row)),
    Rate("requests with confirmed reuse", lambda row: _held(is_reused(row))),
    Rate("answers that kept their quality", lambda row: _held(row.quality_pass)),
    Rate("mean F1 of warm answers", _f1),
    Rate("answers flipped against cold", lambda row: _held(_flipped(row))),
)


def twins_of(a: Sequence[RequestRow], b: Sequence[RequestRow]) -> list[tuple[RequestRow, RequestRow]]:
    known = {row.item_id: row for row in b}
    return [(row, known[row.item_id]) for row in a if row.item_id in known]


def rate_difference(rate: Rate, twins: Twins) -> RateDifference:
    both = [(x, y) for a, b in twins if (x := rate.part(a)) is not None and (y := rate.part(b)) is not None]
    if not both:
        return RateDifference(rate.title, None, None, None)
    parts = np.asarray(both, dtype=np.float64)  # items, (a, b), (numerator, denominator)

    def share(drawn: NDArray[np.intp], arm: int) -> NDArray[np.float64]:
        sums = parts[drawn, arm].sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio: NDArray[np.float64] = sums[:, 0] / sums[:, 1]
        return ratio

    everything = np.arange(len(both))[np.newaxis, :]
    a, b = (float(share(everything, arm)[0]) for arm in (0, 1))
    if not (np.isfinite(a) and np.isfinite(b)):
        return RateDifference(rate.title, None, None, None)
    return RateDifference(rate.title, a, b, bootstrap(len(both), lambda drawn: share(drawn, 1) - share(drawn, 0)))


def time_ratios(twins: Twins, arm: Literal["cold", "warm"]) -> list[float]:
    """A's TTFT over B's, item by item: above 1, B is faster."""
    times = [(timed(getattr(a, arm)), timed(getattr(b, arm))) for a, b in twins]
    return [a_ms / b_ms for a_ms, b_ms in times if a_ms is not None and b_ms is not None]


def speedup_difference(twins: Twins) -> tuple[Estimate | None, Estimate | None, Estimate | None]:
    """Blended median speedups of A and B over pairs that are clean in both, and the difference B minus A."""
    clean = [(a, b) for a, b in twins if not a.negative_control and is_clean(a) and is_clean(b)]
    a, b = ([speedup(row[arm]) for row in clean] for arm in (0, 1))
    first, second = np.asarray(a), np.asarray(b)
    gap = bootstrap(len(clean), lambda drawn: np.median(second[drawn], axis=1) - np.median(first[drawn], axis=1))
    return median_estimate(a), median_estimate(b), gap


def flips_of(twins: Twins) -> list[Flip]:
    """Items whose answer passed in only one result, or that had reuse in only one."""
    flips = []
    for a, b in twins:
        if a.quality_pass is not None and b.quality_pass is not None and a.quality_pass != b.quality_pass:
            flips.append(Flip("quality", a, b, b.quality_pass))
        before, after = is_reused(a), is_reused(b)
        if before is not None and after is not None and before != after:
            flips.append(Flip("reuse", a, b, after))
    return flips
