"""Anchors as donor events carry them: mixed with a namespace's secret salts, so that anchors of two tenants differ.

Called by publishers over a donor's anchors and by routers over a request's; equal grams of one namespace stay equal.
The mix is fast and not a cipher: without the key an anchor cannot be computed from a text; with it, it can.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_SHIFTS: Final = (np.uint64(30), np.uint64(27), np.uint64(31))


def keyed_anchors(hashes: NDArray[np.uint64], salts: tuple[int, int]) -> NDArray[np.uint64]:
    """A bijection of 64-bit values chosen by ``salts``: as many collisions as before, and no new ones."""
    value = hashes ^ np.uint64(salts[0])
    value = (value ^ (value >> _SHIFTS[0])) * _FIRST
    value = value + np.uint64(salts[1])
    value = (value ^ (value >> _SHIFTS[1])) * _SECOND
    return np.asarray(value ^ (value >> _SHIFTS[2]))
