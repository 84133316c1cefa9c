"""Fragments inside chunks that mostly agree although tokens were edited and boundaries moved.

Chunk similarity only limits the search: the result is token-identical fragments at their aligned positions.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semblend.align.runs import Rows, empty_rows, equal_runs

CHUNK: Final = 64
NEIGHBOURHOOD: Final = 16
MIN_OVERLAP: Final = 0.70
_BUCKETS: Final = 512


def fuzzy_fragments(
    donor: ArrayLike,
    recipient: ArrayLike,
    *,
    min_fragment: int,
    chunk: int = CHUNK,
    neighbourhood: int = NEIGHBOURHOOD,
    min_overlap: float = MIN_OVERLAP,
    shifts: NDArray[np.int64] | None = None,
    wanted: NDArray[np.bool_] | None = None,
) -> Rows:
    """Equal fragments of at least ``min_fragment`` tokens between resembling chunks; rows may overlap each other.

    Each recipient chunk is compared, as a multiset of tokens, with the donor windows of the same size up to
    ``neighbourhood`` half chunks away. ``shifts`` (donor position minus target position, one per recipient chunk) says
    around where to look; without it, around the same position. Of the windows that share at least ``min_overlap`` of
    the chunk's tokens the best is searched, with half a chunk of margin because boundaries move. ``wanted`` limits the
    work to some of the recipient's chunks.
    """
    d = np.ascontiguousarray(donor, dtype=np.int64)
    r = np.ascontiguousarray(recipient, dtype=np.int64)
    if not min_fragment <= chunk or chunk < 2:
        raise ValueError("chunk must be at least 2 and at least min_fragment")
    if len(r) < min_fragment or len(d) < min_fragment:
        return empty_rows()
    starts = np.arange(chunk_count(len(r), chunk)) * chunk
    expected = starts if shifts is None else starts + shifts
    chosen = np.arange(len(starts)) if wanted is None else np.flatnonzero(wanted)
    resembling = np.full(len(starts), -1, dtype=np.int64)
    resembling[chosen] = _resembling_donor_starts(
        d, r, starts[chosen], expected[chosen], chunk=chunk, neighbourhood=neighbourhood, min_overlap=min_overlap
    )
    if (resembling < 0).all():
        return empty_rows()
    rows = equal_runs(d, r, min_fragment)
    return _inside(rows, resembling, chunk, min_fragment)


def chunk_count(tokens: int, chunk: int = CHUNK) -> int:
    return -(-tokens // chunk)


def _resembling_donor_starts(
    d: Rows,
    r: Rows,
    starts: NDArray[np.int64],
    expected: NDArray[np.int64],
    *,
    chunk: int,
    neighbourhood: int,
    min_overlap: float,
) -> NDArray[np.int64]:
    """For each recipient chunk the start of the donor window that resembles it most, or -1."""
    step = chunk // 2
    d_counts = _bucket_counts(d, np.arange(0, max(1, len(d) - step), step), chunk)
    r_counts = _bucket_counts(r, starts, chunk)
    needed = min_overlap * r_counts.sum(axis=1)
    best = np.full(len(starts), -1, dtype=np.int64)
    best_overlap = np.zeros(len(starts))
    # Nearest first and strictly better only, so that equal overlaps prefer the smaller move.
    for offset in sorted(range(-neighbourhood, neighbourhood + 1), key=abs):
        window = expected // step + offset
        rows = np.flatnonzero((window >= 0) & (window < len(d_counts)))
        # Tokens that fall into one bucket can only raise the overlap: this suggests too much, never too little.
        overlap = np.minimum(r_counts[rows], d_counts[window[rows]]).sum(axis=1)
        better = (overlap > best_overlap[rows]) & (overlap >= needed[rows])
        best_overlap[rows[better]] = overlap[better]
        best[rows[better]] = window[rows[better]] * step
    return best


def _bucket_counts(tokens: Rows, starts: NDArray[np.int64], chunk: int) -> NDArray[np.uint8]:
    """How often each token bucket occurs in ``tokens[start : start + chunk]``, one row per start."""
    padded = np.concatenate([tokens % _BUCKETS, np.full(chunk, _BUCKETS)])
    cells = padded[starts[:, None] + np.arange(chunk)] + np.arange(len(starts))[:, None] * (_BUCKETS + 1)
    counts = np.bincount(cells.ravel(), minlength=len(starts) * (_BUCKETS + 1)).reshape(len(starts), _BUCKETS + 1)
    return np.minimum(counts[:, :_BUCKETS], 255).astype(np.uint8)


def _inside(rows: Rows, resembling: NDArray[np.int64], chunk: int, min_fragment: int) -> Rows:
    """Cut each row to the recipient chunks it crosses and keep the pieces near the donor window suggested there."""
    pieces = []
    if len(rows) == 0:
        return empty_rows()
    first, last = rows[:, 1] // chunk, (rows[:, 1] + rows[:, 2] - 1) // chunk
    for crossing in range(int((last - first).max()) + 1):
        at = first + crossing
        some = rows[at <= last]
        at = at[at <= last]
        begin = np.maximum(some[:, 1], at * chunk)
        end = np.minimum(some[:, 1] + some[:, 2], (at + 1) * chunk)
        donor_begin = some[:, 0] + begin - some[:, 1]
        window = resembling[at]
        margin = chunk // 2
        near = (window >= 0) & (donor_begin >= window - margin) & (donor_begin + end - begin <= window + chunk + margin)
        pieces.append(np.column_stack([donor_begin, begin, end - begin])[near])
    joined = _joined(np.concatenate(pieces))
    return joined[joined[:, 2] >= min_fragment]


def _joined(pieces: Rows) -> Rows:
    """Pieces that touch on one diagonal, cut apart only by the grid, become one row again."""
    if len(pieces) == 0:
        return empty_rows()
    shift = pieces[:, 0] - pieces[:, 1]
    pieces = pieces[np.lexsort((pieces[:, 1], shift))]
    ends = pieces[:, :2] + pieces[:, 2:]
    heads = np.flatnonzero(np.r_[True, (pieces[1:, :2] != ends[:-1]).any(axis=1)])
    lengths = np.add.reduceat(pieces[:, 2], heads)
    return np.column_stack([pieces[heads, 0], pieces[heads, 1], lengths])
