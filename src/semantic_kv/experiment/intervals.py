"""Bootstrap intervals of rates, and of the difference of two policies on the same units (95 %, seeded).

Units are seeds where there are several, else contiguous stretches of the one trace. The latter say how much the figure
leans on some stretches; the cache itself is not simulated again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from semantic_kv.experiment.figures import Tally

LEAST_UNITS: Final = 5  # fewer give no interval
_DRAWS: Final = 2_000
_SEED: Final = 20_260
Interval = tuple[float, float]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Resampled:
    """Draws of one policy's hit ratio and mean TTFT; the same units in the same draw for every policy."""

    hit_ratio: Floats
    ttft_ms: Floats


def resample(units: Sequence[Tally]) -> Resampled | None:
    if len(units) < LEAST_UNITS:
        return None
    random = np.random.default_rng(_SEED)
    chosen = random.integers(0, len(units), size=(_DRAWS, len(units)))
    rows = [(unit.hit_blocks, unit.references, unit.ttft_sum_ms, unit.requests) for unit in units]
    hits, references, ttft, requests = np.array(rows, dtype=np.float64)[chosen].sum(axis=1).T
    return Resampled(hits / np.maximum(references, 1.0), ttft / np.maximum(requests, 1.0))


def interval_of(draws: Floats) -> Interval:
    low, high = np.percentile(draws, (2.5, 97.5))
    return float(low), float(high)
