"""Is a donor what its tokens give? Rows as fetched and rows as computed here in, how far they differ out.

A donor is a function of its tokens, so any replica can compute it again. A writer that holds the secret can seal wrong
KV; this is how it is found. Rounding differs between machines by a few percent at most; other rows by about 100 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from semblend.fleet.donor_object import PAGE_TOKENS

MAX_DEVIATION: Final = 0.2
Rows = NDArray[np.floating[Any]]  # [layers, sides, tokens, heads, dim]


def deviation(fetched: Rows, computed: Rows, ranges: Sequence[tuple[int, int]]) -> float:
    """The largest relative distance of any layer and side in any page of ``ranges``; one wrong page is enough."""
    worst = 0.0
    for start, end in ranges:
        for at in range(start, end, PAGE_TOKENS):
            theirs, ours = (rows[:, :, at : min(at + PAGE_TOKENS, end)] for rows in (fetched, computed))
            size = np.sqrt(np.square(ours, dtype=np.float64).sum(axis=(2, 3, 4)))
            apart = np.sqrt(np.square(np.subtract(theirs, ours, dtype=np.float64)).sum(axis=(2, 3, 4)))
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(apart == 0.0, 0.0, apart / size)
            worst = max(worst, float(np.nan_to_num(ratio, nan=np.inf).max(initial=0.0)))
    return worst
