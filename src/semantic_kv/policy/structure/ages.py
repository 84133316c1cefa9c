"""How long a block has not been used, in requests, as 32 half octaves: 1, 2, 3, 4, 6, 8, 12, ... and 65,536 up."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel_part


def _starts() -> NDArray[np.int64]:
    starts = [1]
    octave = 2
    while len(starts) < AGES:
        starts += [octave, octave + octave // 2]
        octave *= 2
    return np.array(starts[:AGES], np.int64)


AGES: Final = 32
AGE_STARTS: Final = _starts()


@kernel_part
def age_bucket(requests: int) -> int:
    """The last bucket that starts at or below this age; an age of 0 counts as 1."""
    low = 0
    high = len(AGE_STARTS)
    while high - low > 1:
        middle = (low + high) // 2
        if AGE_STARTS[middle] <= requests:
            low = middle
        else:
            high = middle
    return low
