"""Equal chunks on a fixed grid: cheap fragments for text that was moved by whole chunks.

The look-up compares the chunk's bytes, that is its token ids, not a digest of them.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import ArrayLike

from semblend.align.runs import Rows, empty_rows


def equal_chunks(donor: ArrayLike, recipient: ArrayLike, chunk: int) -> Rows:
    """Rows ``(donor_start, target_start, length)`` of equal grid chunks, extended as far as the tokens agree.

    Rows may overlap. Among several equal donor chunks the one that continues the previous match is preferred, then the
    one nearest to the recipient's position: a continued diagonal means shared context.
    """
    if chunk < 1:
        raise ValueError("chunk must be positive")
    d = np.ascontiguousarray(donor, dtype=np.int64)
    r = np.ascontiguousarray(recipient, dtype=np.int64)
    places: defaultdict[bytes, list[int]] = defaultdict(list)
    for start in range(0, len(d) - chunk + 1, chunk):
        places[d[start : start + chunk].tobytes()].append(start)
    rows: list[tuple[int, int, int]] = []
    for target in range(0, len(r) - chunk + 1, chunk):
        candidates = places.get(r[target : target + chunk].tobytes())
        if not candidates:
            continue
        if rows and rows[-1][1] + rows[-1][2] == target:
            donor_start, target_start, length = rows[-1]
            if donor_start + length in candidates:
                rows[-1] = (donor_start, target_start, length + chunk)
                continue
        rows.append((_nearest(candidates, target), target, chunk))
    return np.array([_extended(d, r, *row) for row in rows], dtype=np.int64) if rows else empty_rows()


def _nearest(ascending: list[int], position: int) -> int:
    at = int(np.searchsorted(ascending, position))
    return min(ascending[max(0, at - 1) : at + 1], key=lambda start: (abs(start - position), start))


def _extended(d: Rows, r: Rows, donor_start: int, target_start: int, length: int) -> tuple[int, int, int]:
    before = _agreeing(d[:donor_start][::-1], r[:target_start][::-1])
    after = _agreeing(d[donor_start + length :], r[target_start + length :])
    return donor_start - before, target_start - before, before + length + after


def _agreeing(left: Rows, right: Rows) -> int:
    """How many tokens agree from the start; the compared range doubles, so that a short answer is cheap."""
    shorter = min(len(left), len(right))
    agreed, reach = 0, 64
    while agreed < shorter:
        stop = min(shorter, agreed + reach)
        differing = np.flatnonzero(left[agreed:stop] != right[agreed:stop])
        if len(differing):
            return agreed + int(differing[0])
        agreed, reach = stop, reach * 2
    return agreed
