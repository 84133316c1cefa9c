"""Every maximal token-identical run between a donor and a recipient, near linear in their lengths.

In: two token arrays. Out: rows (donor_start, target_start, length). Called by ``align_pair`` for each candidate donor.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semblend.align.range_hash import RangeHash

Rows = NDArray[np.int64]

MAX_CANDIDATES: Final = 32
_CROWDED_STRIDE: Final = 64
_VERIFY_AT_ONCE: Final = 1 << 22


def equal_runs(donor: ArrayLike, recipient: ArrayLike, min_run: int, *, max_candidates: int = MAX_CANDIDATES) -> Rows:
    """Rows ``(donor_start, target_start, length)`` of all maximal equal runs of at least ``min_run`` tokens.

    Sorted by ``(target_start, donor_start)``. A run is maximal when it can be extended on neither side.

    The bound: a window of ``min_run`` tokens that occurs more than ``max_candidates`` times in the donor is crowded. Of
    a stretch of crowded windows only the first and then some are looked up, and of their occurrences only the
    ``max_candidates`` nearest to their own position. Highly repetitive input therefore loses runs, but a run through
    every such stretch is found, and every run returned is verified and maximal. Without a crowded window the answer is
    complete.
    """
    if min_run < 1 or max_candidates < 1:
        raise ValueError("min_run and max_candidates must be positive")
    d = np.ascontiguousarray(donor, dtype=np.int64)
    r = np.ascontiguousarray(recipient, dtype=np.int64)
    if min(len(d), len(r)) < min_run:
        return empty_rows()
    longest = max(len(d), len(r))
    d_hash, r_hash = RangeHash(d, longest), RangeHash(r, longest)
    i, j = _seeds(d, r, d_hash.windows(min_run), r_hash.windows(min_run), max_candidates)
    back = _common_length(d_hash, r_hash, i, j, np.minimum(i, j), backwards=True)
    i, j = i - back, j - back
    forward = _common_length(d_hash, r_hash, i, j, np.minimum(len(d) - i, len(r) - j), backwards=False)
    rows = np.unique(np.column_stack([j, i, forward]), axis=0)[:, [1, 0, 2]]
    return _verified(d, r, rows[rows[:, 2] >= min_run])


def empty_rows() -> Rows:
    return np.empty((0, 3), dtype=np.int64)


def _seeds(
    d: Rows, r: Rows, d_windows: NDArray[np.uint64], r_windows: NDArray[np.uint64], bound: int
) -> tuple[Rows, Rows]:
    """Pairs of equal windows, at least one on every run to be returned; in uncrowded text just the heads of runs."""
    order = np.argsort(d_windows, kind="stable")
    in_order = d_windows[order]
    first = np.searchsorted(in_order, r_windows, side="left")
    count = np.searchsorted(in_order, r_windows, side="right") - first
    crowded = count > bound
    if crowded.any():
        first[crowded] += _nearest_offset(order, first[crowded], count[crowded], np.flatnonzero(crowded), bound)
        looked_up = ~crowded | (np.arange(len(r_windows)) % _CROWDED_STRIDE == 0)
        looked_up[1:] |= ~crowded[:-1]
        looked_up[0] = True
        count = np.minimum(count, bound) * looked_up
    j = np.repeat(np.arange(len(r_windows)), count)
    i = order[_ranges(first, count)]
    # The pair before is a seed too, and this one superfluous, unless a crowded window was cut short there.
    preceded = (i > 0) & (j > 0) & (d[i - 1] == r[j - 1]) & ~crowded[j] & ~crowded[j - 1]
    return i[~preceded], j[~preceded]


def _nearest_offset(order: Rows, first: Rows, count: Rows, position: Rows, bound: int) -> Rows:
    """How many of each group's occurrences to skip so that the ``bound`` nearest to ``position`` remain."""
    groups, group = np.unique(first, return_inverse=True)
    size = np.empty(len(groups), dtype=np.int64)
    size[group] = count
    span = int(order.max()) + int(position.max()) + 2
    keys = np.repeat(np.arange(len(groups)), size) * span + order[_ranges(groups, size)]
    starts = np.cumsum(size) - size
    rank = np.searchsorted(keys, group * span + position) - starts[group]
    return np.asarray(np.clip(rank - bound // 2, 0, count - bound), dtype=np.int64)


def _ranges(first: Rows, count: Rows) -> Rows:
    """``first[k] .. first[k] + count[k] - 1`` for every k, one after the other."""
    skipped = np.cumsum(count) - count
    return np.asarray(np.arange(int(count.sum())) + np.repeat(first - skipped, count), dtype=np.int64)


def _common_length(d_hash: RangeHash, r_hash: RangeHash, i: Rows, j: Rows, limit: Rows, *, backwards: bool) -> Rows:
    """How far both sides agree from ``(i, j)`` on, by bisection over range hashes, all pairs at once."""
    low, high = np.zeros_like(limit), limit.copy()
    while (low < high).any():
        middle = (low + high + 1) // 2
        shift = middle if backwards else 0
        agree = d_hash.ranges(i - shift, middle) == r_hash.ranges(j - shift, middle)
        low = np.where(agree, middle, low)
        high = np.where(agree, high, middle - 1)
    return low


def _verified(d: Rows, r: Rows, rows: Rows) -> Rows:
    """The rows whose tokens are equal as ids. A hash collision costs a run; it never invents one."""
    keep = np.ones(len(rows), dtype=bool)
    ends = np.cumsum(rows[:, 2])
    begin = 0
    while begin < len(rows):
        done = int(ends[begin - 1]) if begin else 0
        stop = max(begin + 1, int(np.searchsorted(ends, done + _VERIFY_AT_ONCE, side="right")))
        part = rows[begin:stop]
        equal = d[_ranges(part[:, 0], part[:, 2])] == r[_ranges(part[:, 1], part[:, 2])]
        keep[begin:stop] = np.logical_and.reduceat(equal, np.cumsum(part[:, 2]) - part[:, 2])
        begin = stop
    return rows[keep]
