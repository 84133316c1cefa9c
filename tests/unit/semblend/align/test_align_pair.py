"""``align_pair``: everything returned is token-identical, and no recipient position is covered twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from semblend.align import Alignment, align_pair
from semblend.align.runs import equal_runs

tokens = st.integers(1, 6).flatmap(lambda size: st.lists(st.integers(0, size), max_size=120))
Tokens = NDArray[np.int64]


def coverage(donor: Tokens, recipient: Tokens, alignment: Alignment, min_run: int, min_fragment: int) -> Tokens:
    """How often each recipient position is covered, after checking the laws of every row."""
    times = np.zeros(len(recipient), dtype=np.int64)
    for rows, least, most in (
        (alignment.runs, min_run, len(recipient)),
        (alignment.fragments, min_fragment, min_run - 1),
    ):
        assert (np.diff(rows[:, 1]) > 0).all()
        for i, j, length in rows.tolist():
            assert least <= length <= most
            assert 0 <= i <= len(donor) - length
            assert 0 <= j <= len(recipient) - length
            assert (donor[i : i + length] == recipient[j : j + length]).all()
            times[j : j + length] += 1
    assert times.max(initial=0) <= 1
    return times


@given(tokens, tokens, st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_laws(donor: list[int], recipient: list[int], min_run: int, min_fragment: int, fuzzy: bool) -> None:
    min_fragment = min(min_fragment, min_run)
    d, r = np.array(donor, dtype=np.int64), np.array(recipient, dtype=np.int64)
    alignment = align_pair(donor, recipient, min_run=min_run, min_fragment=min_fragment, fuzzy=fuzzy)
    times = coverage(d, r, alignment, min_run, min_fragment)
    if min_fragment == 1:
        for _, j, length in equal_runs(d, r, min_run).tolist():
            assert times[j : j + length].all()  # trimming for the sake of others never loses a position


def document(length: int = 4000) -> Tokens:
    return np.random.default_rng(5).integers(0, 50_000, length)


def share(donor: Tokens, recipient: Tokens, *, fuzzy: bool = False) -> float:
    alignment = align_pair(donor, recipient, min_run=64, min_fragment=8, fuzzy=fuzzy)
    return float(coverage(donor, recipient, alignment, 64, 8).mean())


def test_a_new_instruction_leaves_one_run() -> None:
    doc = document()
    recipient = np.concatenate([np.arange(60_000, 60_040), doc])
    alignment = align_pair(doc[:], recipient, min_run=64, min_fragment=8, fuzzy=False)
    assert alignment.runs.tolist() == [[0, 40, 4000]]
    assert alignment.run_tokens == 4000
    assert alignment.fragment_tokens == 0


def test_sixteen_shuffled_pieces_are_all_recovered() -> None:
    doc = document()
    pieces = np.array_split(doc, 16)
    order = np.random.default_rng(6).permutation(16)
    assert share(doc, np.concatenate([pieces[at] for at in order])) == 1.0


@pytest.mark.parametrize("fuzzy", [False, True])
@pytest.mark.parametrize(("edited", "least"), [(0.01, 0.98), (0.05, 0.86)])
def test_edits_cost_little_more_than_themselves(edited: float, least: float, fuzzy: bool) -> None:
    doc = document()
    recipient = doc.copy()
    places = np.random.default_rng(7).choice(len(doc), int(edited * len(doc)), replace=False)
    recipient[places] += 60_000
    assert share(doc, recipient, fuzzy=fuzzy) > least


def test_fuzzy_reaches_edited_text_too_large_for_an_edit_script() -> None:
    doc = document()
    recipient = doc.copy()
    recipient[::20] += 60_000
    sizes = {"min_run": 64, "min_fragment": 8, "max_cells": 0}
    assert align_pair(doc, recipient, fuzzy=False, **sizes).fragment_tokens == 0
    assert align_pair(doc, recipient, fuzzy=True, **sizes).fragment_tokens > 0.9 * len(doc)


def test_unrelated_and_shuffled_tokens_align_nowhere() -> None:
    doc = document()
    assert share(doc, doc + 60_000, fuzzy=True) == 0
    assert share(doc, np.random.default_rng(8).permutation(doc), fuzzy=True) == 0


def test_a_passage_quoted_twice_is_taken_twice_from_one_place() -> None:
    doc = document(200)
    alignment = align_pair(doc, np.concatenate([doc, doc]), min_run=64, min_fragment=64, fuzzy=False)
    assert alignment.runs.tolist() == [[0, 0, 200], [0, 200, 200]]


@pytest.mark.parametrize(("min_run", "min_fragment"), [(8, 9), (8, 0)])
def test_impossible_lengths_are_refused(min_run: int, min_fragment: int) -> None:
    with pytest.raises(ValueError, match="fragment"):
        align_pair([1], [1], min_run=min_run, min_fragment=min_fragment, fuzzy=False)
