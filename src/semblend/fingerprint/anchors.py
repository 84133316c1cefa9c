"""Anchors: the positions of a prompt that any sufficiently long copy of it must share.

Winnowing (Schleimer, Wilkerson, Aiken 2003) over hashes of GRAM consecutive tokens: in every window of WINDOW grams the
smallest hash is selected. Two prompts that share a run of GUARANTEE = GRAM + WINDOW - 1 tokens share at least one whole
window. The selection depends on the window's content alone, so both select the same position in it: the run is found
whatever its offset and whatever surrounds it. About two in WINDOW + 1 tokens are selected.

Ties matter in periodic text. Both the leftmost and the rightmost minimum are selected, and a donor keeps only the first
and the last of a stretch of equally spaced equal grams (``thin_periodic``): "----" costs two anchors, not thousands.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.winnowing import gram_hashes, window_minima

GRAM: Final = 32
WINDOW: Final = 33
GUARANTEE: Final = GRAM + WINDOW - 1


class Anchors(NamedTuple):
    """``positions`` ascending; ``hashes[i]`` identifies the GRAM tokens that start at ``positions[i]``."""

    positions: NDArray[np.int32]
    hashes: NDArray[np.uint64]


def select_anchors(tokens: NDArray[np.uint32], start: int = 0) -> Anchors:
    """The anchors of ``tokens[start:]``, with positions counted from the beginning of ``tokens``."""
    hashes = gram_hashes(tokens[start:], GRAM)
    chosen = window_minima(hashes, WINDOW)
    return Anchors((chosen + start).astype(np.int32), hashes[chosen])


def thin_periodic(anchors: Anchors) -> Anchors:
    """Drop anchors inside a periodic stretch: same gram before and after at one distance of at most GRAM tokens.

    Grams that overlap or touch at equal distance make the stretch periodic, so any piece of it equals a piece that
    starts at its first anchor and a piece that ends at its last. Only donors are thinned; recipients look up all their
    anchors.
    """
    positions, hashes = anchors
    if len(positions) < 3:
        return anchors
    same = hashes[1:] == hashes[:-1]
    if not same.any():
        return anchors
    gaps = np.diff(positions)
    inside = same[1:] & same[:-1] & (gaps[1:] == gaps[:-1]) & (gaps[1:] <= GRAM)
    if not inside.any():
        return anchors
    keep = np.ones(len(positions), bool)
    keep[1:-1] = ~inside
    return Anchors(positions[keep], hashes[keep])
