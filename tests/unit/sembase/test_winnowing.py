"""The compiled hashes and minima are those of numpy alone, and a copied window marks the same value in both."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.winnowing import (
    ending_hashes,
    gram_hashes,
    gram_hashes_vectorised,
    window_minima,
    window_minima_vectorised,
)

SEEDS = st.integers(0, 2**32 - 1)
VOCABULARIES = st.sampled_from([1, 2, 5, 2**31])


@settings(deadline=None)
@given(seed=SEEDS, length=st.integers(0, 300), vocabulary=VOCABULARIES, gram=st.integers(1, 40))
def test_compiled_and_vectorised_hashes_agree(seed: int, length: int, vocabulary: int, gram: int) -> None:
    tokens = np.random.default_rng(seed).integers(0, vocabulary, length).astype(np.uint32)
    got = gram_hashes(tokens, gram)
    assert len(got) == max(0, length - gram + 1)
    if len(got):
        assert np.array_equal(got, gram_hashes_vectorised(tokens, gram))
        assert len(np.unique(got)) == len({tokens[i : i + gram].tobytes() for i in range(len(got))})


@settings(deadline=None)
@given(seed=SEEDS, length=st.integers(0, 300), vocabulary=VOCABULARIES, window=st.integers(1, 40))
def test_compiled_and_vectorised_minima_agree(seed: int, length: int, vocabulary: int, window: int) -> None:
    values = np.random.default_rng(seed).integers(0, vocabulary, length).astype(np.uint64)
    got = window_minima(values, window)
    if length < window:
        assert len(got) == 0
        return
    assert np.array_equal(got, window_minima_vectorised(values, window))
    for first in range(length - window + 1):
        inside = values[got[(got >= first) & (got < first + window)]]
        assert inside.min() == values[first : first + window].min()


@settings(deadline=None)
@given(seed=SEEDS, length=st.integers(0, 120), vocabulary=VOCABULARIES, gram=st.integers(1, 40))
def test_every_token_ends_the_gram_that_is_hashed_there(seed: int, length: int, vocabulary: int, gram: int) -> None:
    tokens = np.random.default_rng(seed).integers(0, vocabulary, length).astype(np.uint32)
    ending = [tokens[max(0, end - gram) : end] for end in range(1, length + 1)]
    expected = [int(gram_hashes_vectorised(each, len(each))[0]) for each in ending]
    assert ending_hashes(tokens, gram).tolist() == expected
