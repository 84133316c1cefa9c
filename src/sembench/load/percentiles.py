"""Percentiles with distribution-free confidence intervals from order statistics.

The p-th percentile lies between two values of the ordered sample with a probability that is binomial, whatever the
distribution. Where the sample is too small to bound a side (the p99 of 100 values has no upper bound), it is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

PERCENTS: Final = (50, 90, 95, 99)
_CONFIDENCE: Final = 0.95
_NORMAL_95: Final = 1.959964
_EXACT_UP_TO: Final = 20_000  # beyond, the normal approximation of the binomial is off by less than a rank in a hundred


def summarize(values: Iterable[float]) -> dict[str, Any] | None:
    """``n``, mean, least, most and per percent its nearest-rank value with ``ci95``; None for no values."""
    ordered = np.sort(np.fromiter(values, np.float64))
    count = len(ordered)
    if not count:
        return None
    return {
        "n": count,
        "mean": float(ordered.mean()),
        "min": float(ordered[0]),
        "max": float(ordered[-1]),
        **{f"p{percent}": _percentile(ordered, percent) for percent in PERCENTS},
    }


def value_of(summary: Mapping[str, Any] | None, percent: int) -> float | None:
    return None if summary is None else float(summary[f"p{percent}"]["value"])


def _percentile(ordered: NDArray[np.float64], percent: int) -> dict[str, Any]:
    rank = max(1, math.ceil(percent / 100 * len(ordered)))
    low, high = confidence_ranks(len(ordered), percent / 100)
    bounds = [None if at is None else float(ordered[at - 1]) for at in (low, high)]
    return {"value": float(ordered[rank - 1]), "ci95": bounds}


def confidence_ranks(count: int, share: float) -> tuple[int | None, int | None]:
    """Ranks from 1 whose values enclose the percentile with at least 95 %: half of the rest is left on each side."""
    if count > _EXACT_UP_TO:
        middle, spread = count * share, _NORMAL_95 * math.sqrt(count * share * (1.0 - share))
        return max(1, math.floor(middle - spread)), min(count, math.ceil(middle + spread) + 1)
    tail = (1.0 - _CONFIDENCE) / 2
    # P(B <= k) for B ~ Binomial(count, share): how many values lie below the percentile.
    k = np.arange(count + 1)
    below = np.cumsum(np.exp(_log_choose(count, k) + k * math.log(share) + (count - k) * math.log1p(-share)))
    low = int(np.searchsorted(below, tail, side="right"))
    high = int(np.searchsorted(below, 1.0 - tail, side="left")) + 1
    return (low if low >= 1 else None), (high if high <= count else None)


def _log_choose(count: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
    logs = np.concatenate([np.zeros(1), np.cumsum(np.log(np.arange(1, count + 1)))])
    chosen: NDArray[np.float64] = logs[count] - logs[k] - logs[count - k]
    return chosen
