"""Choose among overlapping verified runs: cover the most positions with the fewest seams.

Any piece of a verified run is itself verified, so the union of all runs can always be covered. Going left to right and
always taking the run that reaches furthest covers it with the fewest pieces. The run that started earlier keeps the
overlap: its tokens there are further from their run's head, where the donor's other context weighs most.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.compiled import kernel

DONOR, DONOR_START, TARGET_START, LENGTH, LEAD = range(5)
COLUMNS: Final = 5


def compose(runs: NDArray[np.int64], floor: int, limit: int, least_stretch: int) -> NDArray[np.int64]:
    """Pieces within ``[floor, limit)``, ascending, disjoint: (donor, donor start, target start, length, lead).

    ``runs`` has the first four of these columns. ``lead`` counts the equal tokens that stood directly before the piece
    in the run it was cut from. Adjacent pieces that together fall short of ``least_stretch`` tokens are dropped; what
    lies outside the limits still counts towards that length.
    """
    if not len(runs):
        return np.empty((0, COLUMNS), np.int64)
    order = np.lexsort((-runs[:, LENGTH], runs[:, TARGET_START]))
    pieces: NDArray[np.int64] = _cover(runs[order], max(0, floor - least_stretch), limit, least_stretch)
    return _cut_below(pieces, floor)


def _cut_below(pieces: NDArray[np.int64], floor: int) -> NDArray[np.int64]:
    pieces = pieces[pieces[:, TARGET_START] + pieces[:, LENGTH] > floor]
    if len(pieces) and (cut := floor - int(pieces[0, TARGET_START])) > 0:
        pieces[0] += np.array([0, cut, cut, -cut, cut])
    return pieces


@kernel
def _cover(runs: NDArray[np.int64], floor: int, limit: int, least_stretch: int) -> NDArray[np.int64]:
    pieces = np.empty((len(runs), 5), np.int64)
    count = 0
    stretch_first = 0  # the first piece of the current stretch of adjacent pieces
    stretch_start = 0  # where it would start without the floor
    stretch_end = -1  # where it would end without the limit
    position = floor
    i = 0
    best = -1
    while True:
        while i < len(runs) and runs[i, 2] <= position:
            if best < 0 or runs[i, 2] + runs[i, 3] > runs[best, 2] + runs[best, 3]:
                best = i
            i += 1
        if best < 0 or runs[best, 2] + runs[best, 3] <= position or position >= limit:
            if stretch_end - stretch_start < least_stretch:
                count = stretch_first
            if i == len(runs) or position >= limit or runs[i, 2] >= limit:
                return pieces[:count]
            stretch_first = count
            stretch_start = runs[i, 2]
            stretch_end = stretch_start
            position = runs[i, 2]
            continue
        end = runs[best, 2] + runs[best, 3]
        if count == stretch_first:
            stretch_start = runs[best, 2]
        stretch_end = end
        lead = position - runs[best, 2]
        pieces[count, 0] = runs[best, 0]
        pieces[count, 1] = runs[best, 1] + lead
        pieces[count, 2] = position
        pieces[count, 3] = min(end, limit) - position
        pieces[count, 4] = lead
        count += 1
        position = end
