"""The oracle that judges the planner is itself judged here by the definition, written out as loops."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.discovery.oracle import Oracle, Tokens, window_hashes
from hypothesis import given, settings
from hypothesis import strategies as st

# Two or three different tokens and short windows: repeats, overlaps and ties everywhere.
_TOKENS = st.lists(st.integers(0, 2), max_size=40)
_DONORS = st.lists(_TOKENS, max_size=4)


def _array(values: list[int]) -> Tokens:
    return np.asarray(values, dtype=np.uint32)


def _all_matches(donors: list[list[int]], recipient: list[int], window: int) -> list[tuple[int, int]]:
    """Every match of at least ``window`` tokens that cannot be made longer on its diagonal."""
    matches = set()
    for donor in donors:
        for start in range(len(recipient)):
            for place in range(len(donor)):
                if start and place and recipient[start - 1] == donor[place - 1]:
                    continue
                length = 0
                while (
                    start + length < len(recipient)
                    and place + length < len(donor)
                    and recipient[start + length] == donor[place + length]
                ):
                    length += 1
                if length >= window:
                    matches.add((start, start + length))
    return sorted(matches)


def _outermost(matches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [m for m in matches if not any(o != m and o[0] <= m[0] and m[1] <= o[1] for o in matches)]


@settings(max_examples=400, deadline=None)
@given(_DONORS, _TOKENS, st.integers(1, 7))
def test_oracle_agrees_with_the_definition(donors: list[list[int]], recipient: list[int], window: int) -> None:
    answer = Oracle([_array(d) for d in donors], window).ask(_array(recipient), stop=len(recipient))

    matches = _all_matches(donors, recipient, window)
    covered = [any(start <= i < end for start, end in matches) for i in range(len(recipient))]
    assert answer.reusable.tolist() == covered
    assert list(answer.runs) == _outermost(matches)


@settings(max_examples=100, deadline=None)
@given(_DONORS, _TOKENS, st.integers(1, 5), st.integers(0, 10))
def test_nothing_is_reusable_in_the_engines_prefix_or_at_the_last_token(
    donors: list[list[int]], recipient: list[int], window: int, first: int
) -> None:
    oracle = Oracle([_array(d) for d in donors], window)
    everywhere = oracle.ask(_array(recipient), stop=len(recipient)).reusable
    clipped = oracle.ask(_array(recipient), first=first)

    expected = [bool(everywhere[i]) and first <= i < len(recipient) - 1 for i in range(len(recipient))]
    assert clipped.reusable.tolist() == expected
    assert all(first <= start < end <= max(len(recipient) - 1, 0) for start, end in clipped.runs)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=60), st.integers(1, 20))
def test_window_hashes_depend_on_the_window_alone(values: list[int], window: int) -> None:
    hashes = window_hashes(_array(values), window)

    assert hashes.size == max(0, len(values) - window + 1)
    for start in range(hashes.size):
        assert hashes[start] == window_hashes(_array(values[start : start + window]), window)[0]


def test_different_windows_hash_differently_in_practice() -> None:
    tokens = np.random.default_rng(0).integers(0, 50_000, 200_000).astype(np.uint32)

    assert np.unique(window_hashes(tokens, 64)).size == tokens.size - 63


def test_a_match_does_not_cross_from_one_donor_into_the_next() -> None:
    answer = Oracle([_array([1, 2, 3]), _array([4, 5, 6])], window=4).ask(_array([1, 2, 3, 4, 5, 6]), stop=6)

    assert not answer.reusable.any()
    assert answer.runs == ()


@pytest.mark.parametrize("donors", [[], [_array([])], [_array([1])]])
def test_an_oracle_of_too_little_text_finds_nothing(donors: list[Tokens]) -> None:
    assert not Oracle(donors, window=2).ask(_array([1, 1, 1])).reusable.any()
