"""Which positions of a load are compared with the model before anybody reads it. Numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import Run

WITNESSES_PER_RUN: Final = 3
MAX_WITNESSES: Final = 96


def witnesses_of(runs: Sequence[Run]) -> NDArray[np.int64]:
    """Head, middle and end of every run, of the first runs if there are too many."""
    parts = [np.linspace(run.target_start, run.target_end - 1, WITNESSES_PER_RUN).astype(np.int64) for run in runs]
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts[: MAX_WITNESSES // WITNESSES_PER_RUN]]))
