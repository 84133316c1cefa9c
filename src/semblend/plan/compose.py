"""Choose among overlapping verified runs: cover the most positions with the fewest seams.

Any piece of a verified run is itself verified, so the union of all runs can always be covered. Going left to right and
always taking the run that reaches furthest covers it with the fewest pieces. The run that started earlier keeps the
overlap: its tokens there are further from their run's head, where the donor's different context weighs most. Of runs
that reach equally far, the one that moves least is taken: a passage after a few hundred tokens and the same passage
after thousands have different KV, even where neither context is the recipient's (docs/guides/fidelity.md).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel

DONOR, DONOR_START, TARGET_START, LENGTH, LEAD = range(5)
COLUMNS: Final = 5


def compose(runs: NDArray[np.int64], floor: int, limit: int, min_stretch: int) -> NDArray[np.int64]:
    """Pieces within ``[floor, limit)``, ascending, disjoint: (donor, donor start, target start, length, lead).

    ``runs`` has the first four of these columns. ``lead`` counts the equal tokens directly before the piece in the run
    it was cut from. Adjacent pieces that together are shorter than ``min_stretch`` tokens are dropped; tokens outside
    the limits still count towards that length.
    """
    if not len(runs):
        return np.empty((0, COLUMNS), np.int64)
    order = np.lexsort((-runs[:, LENGTH], runs[:, TARGET_START]))
    pieces: NDArray[np.int64] = _cover(runs[order], max(0, floor - min_stretch), min_stretch)
    return _cut(pieces, floor, limit)


def _cut(pieces: NDArray[np.int64], floor: int, limit: int) -> NDArray[np.int64]:
    ends = pieces[:, TARGET_START] + pieces[:, LENGTH]
    pieces = pieces[(ends > floor) & (pieces[:, TARGET_START] < limit)]
    if len(pieces) and (cut := floor - int(pieces[0, TARGET_START])) > 0:
        pieces[0] += np.array([0, cut, cut, -cut, cut])
    if len(pieces) and (over := int(pieces[-1, TARGET_START] + pieces[-1, LENGTH]) - limit) > 0:
        pieces[-1, LENGTH] -= over
    return pieces


@kernel
def _cover(runs: NDArray[np.int64], floor: int, min_stretch: int) -> NDArray[np.int64]:
    pieces = np.empty((len(runs), 5), np.int64)
    count = 0
    stretch_first = 0  # the first piece of the current stretch of adjacent pieces
    stretch_start = 0  # where it would start without the floor
    position = floor
    i = 0
    best = -1
    while True:
        while i < len(runs) and runs[i, 2] <= position:
            reach, furthest = runs[i, 2] + runs[i, 3], runs[best, 2] + runs[best, 3]
            moves_less = abs(runs[i, 2] - runs[i, 1]) < abs(runs[best, 2] - runs[best, 1])
            if best < 0 or reach > furthest or (reach == furthest and moves_less):
                best = i
            i += 1
        if best < 0 or runs[best, 2] + runs[best, 3] <= position:
            if position - stretch_start < min_stretch:
                count = stretch_first
            if i == len(runs):
                return pieces[:count]
            stretch_first = count
            stretch_start = runs[i, 2]
            position = runs[i, 2]
            continue
        if count == stretch_first:
            stretch_start = runs[best, 2]
        lead = position - runs[best, 2]
        pieces[count, 0] = runs[best, 0]
        pieces[count, 1] = runs[best, 1] + lead
        pieces[count, 2] = position
        pieces[count, 3] = runs[best, 3] - lead
        pieces[count, 4] = lead
        count += 1
        position = runs[best, 2] + runs[best, 3]
