"""A seeded percentile bootstrap of a median: the 95 % interval beside every speedup."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

RESAMPLES: Final = 2000
LEAST_VALUES: Final = 6
"""Below six values no 95 % interval of a median exists: even from least to greatest covers less (1 - 2 / 2^n)."""
_TAIL: Final = RESAMPLES * 25 // 1000


def median_interval(values: Sequence[float], seed: int) -> list[float] | None:
    """``[low, high]``, the same for the same values in any order; None for fewer than six."""
    if len(values) < LEAST_VALUES:
        return None
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    medians = np.sort(resampled_medians(ordered, RESAMPLES, seed))
    return [float(medians[_TAIL - 1]), float(medians[-_TAIL])]


def resampled_medians(ordered: npt.NDArray[np.float64], resamples: int, seed: int) -> npt.NDArray[np.float64]:
    """Medians of resamples of the sorted values, without making the resamples.

    A resample is n uniform draws, each naming a value; its median is named by the middle draw or draws. Those follow
    Beta distributions, so the cost does not grow with n, and a run of a hundred thousand pairs has its interval, too.
    """
    # RandomState, because its stream is frozen: a gate on another numpy must draw the same resamples.
    draws = np.random.RandomState(seed % 2**32)
    n = len(ordered)
    middle = (n + 1) // 2
    lower = draws.beta(middle, n + 1 - middle, resamples)
    if n % 2:
        return ordered[_named(lower, n)]
    upper = lower + (1.0 - lower) * draws.beta(1, n - middle, resamples)
    return (ordered[_named(lower, n)] + ordered[_named(upper, n)]) / 2.0


def _named(uniform: npt.NDArray[np.float64], n: int) -> npt.NDArray[np.intp]:
    return np.minimum((uniform * n).astype(np.intp), n - 1)
