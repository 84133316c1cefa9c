"""Chunks, fuzzy chunks and edit scripts: each returns token-identical rows only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from semblend.align.chunks import equal_chunks
from semblend.align.fuzzy import fuzzy_fragments
from semblend.align.opcodes import equal_blocks

tokens = st.integers(1, 6).flatmap(lambda size: st.lists(st.integers(0, size), max_size=80))


def require_token_identity(donor: list[int], recipient: list[int], rows: NDArray[np.int64], least: int) -> None:
    assert rows.shape == (len(rows), 3)
    for i, j, length in rows.tolist():
        assert i >= 0
        assert j >= 0
        assert length >= least
        assert i + length <= len(donor)
        assert j + length <= len(recipient)
        assert donor[i : i + length] == recipient[j : j + length]


@given(tokens, tokens, st.integers(1, 9))
def test_chunks_are_token_identical_and_complete_on_the_grid(
    donor: list[int], recipient: list[int], chunk: int
) -> None:
    rows = equal_chunks(donor, recipient, chunk)
    require_token_identity(donor, recipient, rows, chunk)
    covered = {position for _, j, length in rows.tolist() for position in range(j, j + length)}
    of_donor = {tuple(donor[at : at + chunk]) for at in range(0, len(donor) - chunk + 1, chunk)}
    for at in range(0, len(recipient) - chunk + 1, chunk):
        if tuple(recipient[at : at + chunk]) in of_donor:
            assert covered.issuperset(range(at, at + chunk))


def test_a_continued_diagonal_is_preferred_over_a_nearer_copy() -> None:
    passage = list(range(100, 108))
    donor = [9, 9, 9, 9, *passage, 7, 7, 7, 7, *passage[4:], 8, 8, 8, 8]
    recipient = [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, *passage]
    assert equal_chunks(donor, recipient, 4).tolist() == [[4, 12, 8]]


@given(tokens, tokens, st.integers(1, 8), st.floats(0.0, 1.0))
def test_fuzzy_fragments_are_token_identical(
    donor: list[int], recipient: list[int], min_fragment: int, min_overlap: float
) -> None:
    rows = fuzzy_fragments(donor, recipient, min_fragment=min_fragment, chunk=16, min_overlap=min_overlap)
    require_token_identity(donor, recipient, rows, min_fragment)


def test_fuzzy_finds_what_stayed_between_edits_although_boundaries_moved() -> None:
    rng = np.random.default_rng(0)
    donor = rng.integers(0, 50_000, 640)
    recipient = np.insert(donor, np.arange(15, 640, 16), rng.integers(0, 50_000, 40))[:640]
    rows = fuzzy_fragments(donor, recipient, min_fragment=8)
    covered = np.zeros(640, dtype=bool)
    for _, j, length in rows.tolist():
        covered[j : j + length] = True
    assert covered.mean() > 0.85


def test_fuzzy_ignores_fragments_of_chunks_that_do_not_resemble() -> None:
    rng = np.random.default_rng(1)
    donor, recipient = rng.integers(0, 50_000, 256), rng.integers(50_000, 99_000, 256)
    recipient[100:110] = donor[100:110]
    assert len(fuzzy_fragments(donor, recipient, min_fragment=8)) == 0


def test_fuzzy_searches_around_the_given_shifts() -> None:
    rng = np.random.default_rng(2)
    passage = rng.integers(0, 50_000, 128)
    donor = np.concatenate([rng.integers(0, 50_000, 6400), passage])
    recipient = passage.copy()
    recipient[::20] = 60_000
    assert len(fuzzy_fragments(donor, recipient, min_fragment=8)) == 0
    assert len(fuzzy_fragments(donor, recipient, min_fragment=8, shifts=np.array([6400, 6400]))) > 4


def test_a_fragment_must_fit_into_a_chunk() -> None:
    with pytest.raises(ValueError, match="chunk"):
        fuzzy_fragments([1], [1], min_fragment=65)


@given(tokens, tokens, st.integers(1, 5))
def test_edit_blocks_are_token_identical_and_in_order(donor: list[int], recipient: list[int], least: int) -> None:
    rows = equal_blocks(donor, recipient, least)
    require_token_identity(donor, recipient, rows, least)
    for (i, j, length), (i_next, j_next, _) in zip(rows.tolist(), rows.tolist()[1:], strict=False):
        assert i + length <= i_next
        assert j + length <= j_next


def test_edit_blocks_skip_pairs_that_are_too_large() -> None:
    same = list(range(100))
    assert equal_blocks(same, same, 1, max_cells=10_000).tolist() == [[0, 0, 100]]
    assert len(equal_blocks(same, same, 1, max_cells=9_999)) == 0
