"""One donor against one recipient: exact runs first, then what finer methods find in the positions still uncovered.

Called by the pipeline for each candidate. Everything returned is token-identical; the recipient is never covered twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from semblend.align.chunks import equal_chunks
from semblend.align.fuzzy import CHUNK, chunk_count, fuzzy_fragments
from semblend.align.opcodes import MAX_CELLS, equal_blocks
from semblend.align.runs import MAX_CANDIDATES, Rows, empty_rows, equal_runs


@dataclass(frozen=True, slots=True)
class Alignment:
    """Rows ``(donor_start, target_start, length)`` by target position, disjoint in the recipient across both arrays.

    ``runs`` have at least the minimum run length, ``fragments`` are shorter. Donor tokens may be used at two
    places of the recipient: a passage quoted twice needs only one donor.
    """

    runs: Rows
    fragments: Rows

    @property
    def run_tokens(self) -> int:
        return int(self.runs[:, 2].sum())

    @property
    def fragment_tokens(self) -> int:
        return int(self.fragments[:, 2].sum())


def align_pair(
    donor: ArrayLike,
    recipient: ArrayLike,
    *,
    min_run: int,
    min_fragment: int,
    fuzzy: bool,
    max_cells: int = MAX_CELLS,
    max_candidates: int = MAX_CANDIDATES,
) -> Alignment:
    if not 1 <= min_fragment <= min_run:
        raise ValueError("min_fragment must be at least 1 and at most min_run")
    d = np.ascontiguousarray(donor, dtype=np.int64)
    r = np.ascontiguousarray(recipient, dtype=np.int64)
    free = np.ones(len(r), dtype=bool)
    runs = _place(equal_runs(d, r, min_run, max_candidates=max_candidates), free, min_fragment)
    placed = [runs]
    if min_fragment < min_run:
        placed.append(_place(equal_chunks(d, r, max(min_fragment, min_run // 2)), free, min_fragment))
        if fuzzy:
            placed.append(_place(_fuzzy(d, r, runs, free, min_fragment), free, min_fragment))
        placed.append(_place(_between(d, r, _join(placed), min_fragment, max_cells), free, min_fragment))
    rows = _join(placed)
    is_run = rows[:, 2] >= min_run
    return Alignment(runs=rows[is_run], fragments=rows[~is_run])


def _place(rows: Rows, free: NDArray[np.bool_], min_length: int) -> Rows:
    """Give each recipient position to at most one row, long rows first, and mark it taken in ``free``.

    Part of a token-identical row is token-identical, so a row that meets a longer one is trimmed rather than lost.
    """
    rows = _not_contained(rows)
    shifts = np.abs(rows[:, 0] - rows[:, 1])
    placed: list[tuple[int, int, int]] = []
    for donor_start, target_start, length in rows[np.lexsort((rows[:, 1], shifts, -rows[:, 2]))].tolist():
        span = free[target_start : target_start + length]
        edges = np.flatnonzero(np.diff(np.r_[False, span, False].astype(np.int8)))
        for begin, end in edges.reshape(-1, 2).tolist():
            if end - begin >= min_length:
                placed.append((donor_start + begin, target_start + begin, end - begin))
                span[begin:end] = False
    return np.array(placed, dtype=np.int64) if placed else empty_rows()


def _not_contained(rows: Rows) -> Rows:
    """Drop rows whose recipient range lies inside another row's. In repetitive text that removes most rows."""
    if len(rows) < 2:
        return rows
    shifts = np.abs(rows[:, 0] - rows[:, 1])
    rows = rows[np.lexsort((shifts, -rows[:, 2], rows[:, 1]))]
    ends = rows[:, 1] + rows[:, 2]
    return rows[np.r_[True, ends[1:] > np.maximum.accumulate(ends)[:-1]]]


def _fuzzy(d: Rows, r: Rows, runs: Rows, free: NDArray[np.bool_], min_fragment: int) -> Rows:
    if len(r) == 0:
        return empty_rows()
    chunk = max(CHUNK, min_fragment)
    starts = np.arange(chunk_count(len(r), chunk)) * chunk
    shifts = np.zeros(len(starts), dtype=np.int64)
    if len(runs):
        # A gap most likely continues the run before it, so look where that run points.
        ordered = runs[np.argsort(runs[:, 1])]
        before = np.maximum(np.searchsorted(ordered[:, 1], starts, side="right") - 1, 0)
        shifts = (ordered[:, 0] - ordered[:, 1])[before]
    wanted = np.add.reduceat(free.astype(np.int64), starts) >= min_fragment
    return fuzzy_fragments(d, r, min_fragment=min_fragment, chunk=chunk, shifts=shifts, wanted=wanted)


def _between(d: Rows, r: Rows, placed: Rows, min_fragment: int, max_cells: int) -> Rows:
    """Edit scripts of the gaps before, between and after rows, where the donor has the rows in the same order."""
    corners = [(0, 0, 0), *placed.tolist(), (len(d), len(r), 0)]
    found = []
    for (donor_start, target_start, length), (donor_next, target_next, _) in pairwise(corners):
        donor_end, target_end = donor_start + length, target_start + length
        if donor_next - donor_end < min_fragment or target_next - target_end < min_fragment:
            continue
        block = equal_blocks(d[donor_end:donor_next], r[target_end:target_next], min_fragment, max_cells=max_cells)
        found.append(block + np.array([donor_end, target_end, 0]))
    return np.concatenate(found) if found else empty_rows()


def _join(parts: list[Rows]) -> Rows:
    """All rows by target position; adjacent rows on the same diagonal are merged."""
    rows = np.concatenate(parts)
    rows = rows[np.argsort(rows[:, 1])]
    if len(rows) < 2:
        return rows
    ends = rows[:, :2] + rows[:, 2:]
    heads = np.flatnonzero(np.r_[True, (rows[1:, :2] != ends[:-1]).any(axis=1)])
    return np.column_stack([rows[heads, 0], rows[heads, 1], np.add.reduceat(rows[:, 2], heads)])
