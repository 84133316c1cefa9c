"""Choose among overlapping verified runs: cover every position that some run covers, at the lowest cost.

Any piece of a verified run is itself verified, so the union of all runs can always be covered; what differs is the
context in which the donors computed it. Without a context the pieces are the fewest, and the run that started earlier
keeps an overlap. With a context, a token costs the fraction of differing context before it and a new piece costs its
recomputed head, so of several donors of one text the donor whose context is nearest to the recipient's is taken. At
equal cost the run that moves least is taken: a passage after a few hundred tokens and the same passage after thousands
have different KV, even where neither context is the recipient's (docs/guides/fidelity.md).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part

DONOR, DONOR_START, TARGET_START, LENGTH, DIFFERING = range(5)
COLUMNS: Final = 5
PER_MOVED_TOKEN: Final = 1e-12  # breaks ties only
ACTIVE: Final = 16  # runs compared at one position, which bounds the work on periodic text


def ascending(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows by where they begin in the recipient, the longest first."""
    order = np.argsort((rows[:, TARGET_START] << 32) - rows[:, LENGTH], kind="stable")
    sorted_rows: NDArray[np.int64] = rows[order]
    return sorted_rows


def compose(
    runs: NDArray[np.int64], floor: int, limit: int, min_stretch: int, *, boundary: int | None = None
) -> NDArray[np.int64]:
    """Pieces of ``runs`` within ``[floor, limit)``, ascending and disjoint. ``runs`` are ``ascending``.

    The columns of both are donor, donor start, target start, length, and the tokens of differing context before it;
    those of a piece are the run's. ``boundary`` tokens are recomputed at the head of a piece whose whole context
    differs; None: compose the fewest pieces, whatever their context. Adjacent pieces that together are shorter than
    ``min_stretch`` tokens are dropped; tokens outside the limits still count towards that length.
    """
    if not len(runs):
        return np.empty((0, COLUMNS), np.int64)
    price = -1 if boundary is None else boundary
    pieces: NDArray[np.int64] = _cover(runs, max(0, floor - min_stretch), limit, min_stretch, price)
    return _cut(pieces, floor)


def _cut(pieces: NDArray[np.int64], floor: int) -> NDArray[np.int64]:
    pieces = pieces[pieces[:, TARGET_START] + pieces[:, LENGTH] > floor]
    if len(pieces) and (cut := floor - int(pieces[0, TARGET_START])) > 0:
        pieces[0] += np.array([0, cut, cut, -cut, 0])
    return pieces


@kernel_part
def token_cost(run: NDArray[np.int64], begin: int, end: int, price: int) -> float:
    """Differing fractions of context summed over ``[begin, end)`` of the recipient, by the integral."""
    moved = PER_MOVED_TOKEN * abs(run[2] - run[1]) * (end - begin)
    if price < 0 or run[4] == 0:
        return float(moved)
    before = max(run[1], run[2]) - run[2]  # the donor's or the recipient's context, whichever is longer
    return float(moved + run[4] * np.log((before + end) / (before + begin)))


@kernel_part
def seam_cost(run: NDArray[np.int64], begin: int, price: int) -> float:
    """One, and the tokens that the gates recompute at the head of a piece."""
    if price < 0 or run[4] == 0:
        return 1.0
    before = max(run[1], run[2]) - run[2]
    return float(1.0 + price * np.sqrt(run[4] / (before + begin)))


@kernel
def _cover(runs: NDArray[np.int64], floor: int, limit: int, min_stretch: int, price: int) -> NDArray[np.int64]:
    """The cheapest sequence of runs from edge to edge, where an edge is where a run begins or ends.

    ``opened`` lists every piece that may be part of it: its run, where it begins, and the piece before it. For each
    active run, ``piece`` and ``cost`` are those of the cheapest sequence that uses the run up to the current edge.
    """
    edges = np.sort(np.concatenate((runs[:, 2], runs[:, 2] + runs[:, 3])))
    opened = np.empty((ACTIVE * len(edges) + 1, 3), np.int64)
    pieces = np.empty((len(edges) + 1, 5), np.int64)
    active = np.empty(ACTIVE, np.int64)
    piece = np.empty(ACTIVE, np.int64)
    cost = np.empty(ACTIVE, np.float64)
    count = 0
    last = 0  # rows of ``opened``
    kept = 0  # rows of ``pieces``
    following = 0  # the first run that has not become active
    for e in range(len(edges) - 1):
        begin = int(edges[e])
        end = int(edges[e + 1])
        if begin >= limit:
            break
        if end == begin:
            continue
        best = cheapest(piece, cost, count)
        best_cost = cost[best] if best >= 0 else 0.0
        best_piece = piece[best] if best >= 0 else -1
        best_run = active[best] if best >= 0 else -1
        count = leave(runs, active, piece, cost, count, begin)
        while following < len(runs) and runs[following, 2] <= begin:
            if runs[following, 2] + runs[following, 3] > max(begin, floor):
                count = enter(runs, following, active, piece, cost, count)
            following += 1
        if end <= floor or count == 0:
            continue
        begin = max(begin, floor)
        stop = min(end, limit)
        reach = end
        for a in range(count):
            i = active[a]
            reach = max(reach, runs[i, 2] + runs[i, 3])
            entered = best_cost + seam_cost(runs[i], begin, price)
            if i != best_run and entered <= cost[a]:
                cost[a] = entered
                opened[last, 0] = i
                opened[last, 1] = begin
                opened[last, 2] = best_piece
                piece[a] = last
                last += 1
            cost[a] += token_cost(runs[i], begin, stop, price)
        is_last = reach == end and (following == len(runs) or runs[following, 2] > end)
        if is_last or end >= limit:  # a stretch of adjacent pieces ends
            best = cheapest(piece, cost, count)
            kept = close(runs, opened, piece[best], stop, pieces, kept, min_stretch - (reach - stop))
            count = 0
            last = 0
    return pieces[:kept]


@kernel_part
def cheapest(piece: NDArray[np.int64], cost: NDArray[np.float64], count: int) -> int:
    best = -1
    for a in range(count):
        if piece[a] >= 0 and (best < 0 or cost[a] < cost[best]):
            best = a
    return best


@kernel_part
def leave(
    runs: NDArray[np.int64],
    active: NDArray[np.int64],
    piece: NDArray[np.int64],
    cost: NDArray[np.float64],
    count: int,
    begin: int,
) -> int:
    """Remove the runs that end at ``begin``; returns how many remain."""
    remaining = 0
    for a in range(count):
        i = active[a]
        if runs[i, 2] + runs[i, 3] > begin:
            active[remaining] = i
            piece[remaining] = piece[a]
            cost[remaining] = cost[a]
            remaining += 1
    return remaining


@kernel_part
def enter(
    runs: NDArray[np.int64],
    i: int,
    active: NDArray[np.int64],
    piece: NDArray[np.int64],
    cost: NDArray[np.float64],
    count: int,
) -> int:
    """Make run ``i`` active, in the place of the most expensive run if there are too many; never of the run that
    reaches furthest, so that everything stays covered.
    """
    end = runs[i, 2] + runs[i, 3]
    a = count
    if count == ACTIVE:
        furthest = 0
        for other in range(1, ACTIVE):
            if runs[active[other], 2] + runs[active[other], 3] > runs[active[furthest], 2] + runs[active[furthest], 3]:
                furthest = other
        a = 1 if furthest == 0 else 0
        for other in range(ACTIVE):
            if other != furthest and cost[other] > cost[a]:
                a = other
        if end <= runs[active[a], 2] + runs[active[a], 3]:
            return count
    active[a] = i
    piece[a] = -1
    cost[a] = np.inf
    return min(count + 1, ACTIVE)


@kernel_part
def close(
    runs: NDArray[np.int64],
    opened: NDArray[np.int64],
    piece: int,
    end: int,
    pieces: NDArray[np.int64],
    kept: int,
    min_stretch: int,
) -> int:
    """Append the pieces that lead to ``piece``, which ends at ``end``, unless they are too short together."""
    count = 0
    first = piece
    before = piece
    while before >= 0:
        first = before
        count += 1
        before = opened[before, 2]
    if end - runs[opened[first, 0], 2] < min_stretch:
        return kept
    for row in range(kept + count - 1, kept - 1, -1):
        i = opened[piece, 0]
        begin = opened[piece, 1]
        pieces[row, 0] = runs[i, 0]
        pieces[row, 1] = runs[i, 1] + begin - runs[i, 2]
        pieces[row, 2] = begin
        pieces[row, 3] = end - begin
        pieces[row, 4] = runs[i, 4]
        end = begin
        piece = opened[piece, 2]
    return kept + count
