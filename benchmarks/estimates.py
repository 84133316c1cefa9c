"""Medians and means with their uncertainty: quartiles for tables, bootstrap intervals for verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

DRAWS = 4_000


@dataclass(frozen=True, slots=True)
class Quartiles:
    n: int
    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Quartiles | None:
        if not values:
            return None
        low, median, high = np.quantile(np.asarray(values, dtype=np.float64), [0.25, 0.5, 0.75])
        return cls(len(values), float(low), float(median), float(high))

    def shown(self, form: str = "{:.0f}") -> str:
        return f"{form.format(self.median)} ({form.format(self.low)}-{form.format(self.high)})"


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and the 95 % interval of resampling the items it came from."""

    n: int
    estimate: float
    low: float
    high: float

    def shown(self, form: str = "{:.3f}") -> str:
        return f"{form.format(self.estimate)} [{form.format(self.low)}, {form.format(self.high)}]"


def median_interval(values: Sequence[float], seed: int = 1) -> Interval | None:
    return _interval([values], lambda drawn: np.median(drawn[0], axis=1), seed)


def mean_difference(later: Sequence[float], earlier: Sequence[float], seed: int = 1) -> Interval | None:
    return _interval([later, earlier], lambda drawn: drawn[0].mean(axis=1) - drawn[1].mean(axis=1), seed)


def _interval(
    groups: Sequence[Sequence[float]], figure: Callable[[list[NDArray[np.float64]]], NDArray[np.float64]], seed: int
) -> Interval | None:
    if any(not len(group) for group in groups):
        return None
    random = np.random.default_rng(seed)
    arrays = [np.asarray(group, dtype=np.float64) for group in groups]
    drawn = [array[random.integers(0, array.size, (DRAWS, array.size))] for array in arrays]
    low, high = np.quantile(figure(drawn), [0.025, 0.975])
    estimate = figure([array[np.newaxis, :] for array in arrays])[0]
    return Interval(min(array.size for array in arrays), float(estimate), float(low), float(high))


def quantiles(values: Sequence[float]) -> dict[str, float] | None:
    if not len(values):
        return None
    p50, p90, p99 = np.quantile(np.asarray(values, dtype=np.float64), [0.5, 0.9, 0.99])
    return {"n": len(values), "p50": float(p50), "p90": float(p90), "p99": float(p99), "high": float(max(values))}


def median_and_range(values: Sequence[float], form: str = "{:.0f}") -> str | None:
    if not values:
        return None
    middle, low, high = (form.format(value) for value in (median(values), min(values), max(values)))
    return f"{middle} [{low}, {high}]"
