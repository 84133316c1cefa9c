"""Figures with 95 % intervals: seeded bootstrap over items, Wilson for counts. Too few items give no interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembench.paired import MIN_VALUES, median_interval
from sembench.report.formats import TIMES

Floats = NDArray[np.float64]
DRAWS: Final = 2_000
_CELLS: Final = 2_000_000
_Z95: Final = 1.959964


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over ``n`` items and its 95 % interval; ``low`` and ``high`` are None if the items are too few."""

    n: int
    value: float
    low: float | None = None
    high: float | None = None

    def shown(self, form: Callable[[float], str]) -> str:
        if self.low is None or self.high is None:
            return form(self.value)
        ends = (form(end).removesuffix(TIMES) for end in (self.low, self.high))
        return f"{form(self.value)} [{', '.join(ends)}]"


def median_estimate(values: Sequence[float], seed: int = 1) -> Estimate | None:
    """The same interval as in the ``paired`` block of a result."""
    if not values:
        return None
    low, high = median_interval(values, seed) or (None, None)
    return Estimate(len(values), float(np.median(values)), low, high)


def bootstrap(n: int, statistic: Callable[[NDArray[np.intp]], Floats], seed: int = 1) -> Estimate | None:
    """``statistic`` maps rows of item indices to one figure per row. The point estimate uses every item once."""
    if n == 0:
        return None
    value = float(statistic(np.arange(n)[np.newaxis, :])[0])
    if not math.isfinite(value):
        return None
    if n < MIN_VALUES:
        return Estimate(n, value)
    random = np.random.default_rng(seed)
    batch = max(1, min(DRAWS, _CELLS // n))
    drawn = [statistic(random.integers(0, n, (min(batch, DRAWS - at), n))) for at in range(0, DRAWS, batch)]
    low, high = np.nanquantile(np.concatenate(drawn), [0.025, 0.975])
    return Estimate(n, value, float(low), float(high))


def wilson(successes: int, trials: int) -> Estimate | None:
    if trials == 0:
        return None
    share, z2 = successes / trials, _Z95**2
    centre = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z95 / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    return Estimate(trials, share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))
