"""``equal_runs`` against an O(nm) oracle, and its bound on repetitive input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from semblend.align import range_hash
from semblend.align.runs import equal_runs

Row = tuple[int, int, int]
small_alphabet = st.integers(1, 6).flatmap(lambda size: st.lists(st.integers(0, size), max_size=40))
token_ids = st.lists(st.sampled_from([0, 1, 7, 151_643, 2**31 - 1, 2**32 - 1]), max_size=30)


def maximal_runs(donor: list[int], recipient: list[int], min_run: int) -> set[Row]:
    """Walk every diagonal, token by token."""
    found = set()
    for i in range(len(donor)):
        for j in range(len(recipient)):
            if donor[i] != recipient[j] or (i and j and donor[i - 1] == recipient[j - 1]):
                continue
            length = 0
            while (
                i + length < len(donor) and j + length < len(recipient) and donor[i + length] == recipient[j + length]
            ):
                length += 1
            if length >= min_run:
                found.add((i, j, length))
    return found


def as_set(rows: NDArray[np.int64]) -> set[Row]:
    assert rows.dtype == np.int64
    assert rows.shape == (len(rows), 3)
    distinct = {(int(i), int(j), int(length)) for i, j, length in rows}
    assert len(distinct) == len(rows)
    return distinct


@given(small_alphabet | token_ids, small_alphabet | token_ids, st.integers(1, 8))
def test_equals_brute_force_when_no_window_is_crowded(donor: list[int], recipient: list[int], min_run: int) -> None:
    assert as_set(equal_runs(donor, recipient, min_run, max_candidates=100)) == maximal_runs(donor, recipient, min_run)


@given(small_alphabet, small_alphabet, st.integers(1, 6), st.integers(1, 4))
def test_the_bound_loses_runs_but_never_invents_or_shortens_one(
    donor: list[int], recipient: list[int], min_run: int, bound: int
) -> None:
    everything = maximal_runs(donor, recipient, min_run)
    found = as_set(equal_runs(donor, recipient, min_run, max_candidates=bound))
    assert found <= everything
    assert bool(found) == bool(everything)


def test_rows_come_in_order_of_target_and_donor() -> None:
    rows = equal_runs([1, 2, 3, 9, 1, 2, 3], [1, 2, 3, 8, 1, 2, 3], 3)
    assert rows.tolist() == [[0, 0, 3], [4, 0, 3], [0, 4, 3], [4, 4, 3]]


def test_highly_repetitive_input_is_bounded_and_keeps_the_longest_run() -> None:
    same = np.zeros(3000, dtype=np.uint32)
    rows = equal_runs(same, same, 16, max_candidates=32)
    assert (0, 0, 3000) in as_set(rows)
    assert len(rows) < 200  # the complete answer has 5,969 runs


def test_a_repetitive_stretch_does_not_interrupt_a_run_through_it() -> None:
    rng = np.random.default_rng(3)
    before, behind = rng.integers(0, 50_000, 100), rng.integers(0, 50_000, 100)
    document = np.concatenate([before, np.full(400, 5), behind])
    moved = np.concatenate([rng.integers(0, 50_000, 37), document])
    assert (0, 37, 600) in as_set(equal_runs(document, moved, 16, max_candidates=4))


def test_a_run_that_begins_in_a_crowded_stretch_is_found_from_its_other_end() -> None:
    document = np.random.default_rng(4).integers(1, 50_000, 100)
    donor = np.concatenate([np.zeros(200, dtype=np.int64), document])
    recipient = np.concatenate([np.zeros(50, dtype=np.int64), document])
    assert (150, 0, 150) in as_set(equal_runs(donor, recipient, 16, max_candidates=4))


@given(small_alphabet, small_alphabet)
def test_colliding_hashes_cannot_pass_as_equal_tokens(donor: list[int], recipient: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_hash, "_BASES", np.array([[1], [1]], dtype=np.uint64))  # any permutation collides
        found = as_set(equal_runs(donor, recipient, 3, max_candidates=100))
    for i, j, length in found:
        assert donor[i : i + length] == recipient[j : j + length]


def test_sequences_without_a_whole_window_have_no_runs() -> None:
    assert equal_runs([], [], 1).shape == (0, 3)
    assert equal_runs([1, 2], [1, 2, 3], 3).shape == (0, 3)


@pytest.mark.parametrize(("min_run", "bound"), [(0, 1), (1, 0)])
def test_limits_must_be_positive(min_run: int, bound: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        equal_runs([1], [1], min_run, max_candidates=bound)
