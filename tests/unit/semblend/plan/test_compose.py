from __future__ import annotations

import itertools

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from semblend.plan.compose import DONOR_START, LENGTH, TARGET_START, ascending, compose

RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.integers(0, 50), st.integers(1, 30)), max_size=8)


def fewest_pieces(rows: NDArray[np.int64], floor: int, limit: int, min_stretch: int) -> NDArray[np.int64]:
    rows = ascending(rows)
    return compose(np.column_stack([rows, np.zeros(len(rows), np.int64)]), floor, limit, min_stretch)


def covered(rows: NDArray[np.int64], size: int = 100) -> NDArray[np.bool_]:
    positions = np.zeros(size, bool)
    for row in rows:
        positions[row[TARGET_START] : row[TARGET_START] + row[LENGTH]] = True
    return positions


@settings(max_examples=300, deadline=None)
@example(runs=[(0, 0, 43, 18), (0, 2, 44, 18)], floor=0, limit=61)  # the second covers more only beyond the limit
@given(runs=RUNS, floor=st.integers(0, 60), limit=st.integers(61, 99))
def test_all_is_covered_with_the_fewest_pieces(runs: list[tuple[int, int, int, int]], floor: int, limit: int) -> None:
    rows = np.array(runs, np.int64).reshape(-1, 4)
    pieces = fewest_pieces(rows, floor, limit, 1)
    wanted = covered(rows)
    wanted[:floor] = False
    wanted[limit:] = False
    assert np.array_equal(covered(pieces), wanted)
    ends = pieces[:, TARGET_START] + pieces[:, LENGTH]
    assert (pieces[1:, TARGET_START] >= ends[:-1]).all()
    for piece in pieces:  # each piece is part of a run of its donor on the same diagonal
        assert any(
            row[0] == piece[0]
            and row[2] - row[1] == piece[TARGET_START] - piece[DONOR_START]
            and row[2] <= piece[TARGET_START]
            and row[2] + row[3] >= piece[TARGET_START] + piece[LENGTH]
            for row in rows
        )
    if floor == 0:
        assert len(pieces) == fewest(rows, wanted)


def fewest(rows: NDArray[np.int64], wanted: NDArray[np.bool_]) -> int:
    """Exhaustive: the smallest set of runs that covers as much."""
    inside = [row for row in rows if row[TARGET_START] < np.flatnonzero(wanted).max(initial=-1) + 1]
    for size in range(len(inside) + 1):
        for chosen in itertools.combinations(inside, size):
            if not (wanted & ~covered(np.array(chosen, np.int64).reshape(-1, 4))).any():
                return size
    raise AssertionError("the runs themselves cover what they cover")


def test_short_stretches_are_dropped_and_adjacent_pieces_count_together() -> None:
    rows = np.array([[0, 0, 10, 20], [1, 0, 30, 20], [2, 0, 60, 39]], np.int64)
    assert fewest_pieces(rows, 0, 100, 40)[:, TARGET_START].tolist() == [10, 30]
    assert fewest_pieces(rows, 0, 100, 41).tolist() == []
    assert fewest_pieces(rows, 0, 100, 39)[:, TARGET_START].tolist() == [10, 30, 60]


def test_what_lies_in_the_exact_prefix_counts_towards_the_length() -> None:
    rows = np.array([[0, 100, 0, 64]], np.int64)
    (piece,) = fewest_pieces(rows, 60, 99, 64)
    assert piece.tolist() == [0, 160, 60, 4, 0]


@given(st.permutations([(0, 30, 900, 80), (1, 700, 900, 80), (2, 1900, 900, 80), (3, 690, 890, 90)]))
def test_of_equal_reach_the_donor_of_nearest_depth_is_taken(runs: list[tuple[int, int, int, int]]) -> None:
    """Donor 3 starts earlier: from there on it and donor 1, which reach equally far, move equally little."""
    (piece,) = fewest_pieces(np.array(runs, np.int64), 0, 2000, 64)
    assert piece.tolist() == [3, 690, 890, 90, 0]
    only = [run for run in runs if run[0] != 3]
    (piece,) = fewest_pieces(np.array(only, np.int64), 0, 2000, 64)
    assert piece.tolist() == [1, 700, 900, 80, 0]
