"""The embedder without a model: its cosine tracks the Jaccard similarity of shingles, and preambles hide nothing."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semblend.fingerprint.embed.jaccard import JaccardEmbedder

WORDS = [f"word{number}" for number in range(4000)]


def text_of(words: int, seed: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def one_window(dimensions: int) -> JaccardEmbedder:
    return JaccardEmbedder(dimensions, radius=10_000)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 150), st.integers(0, 150), st.integers(0, 150), st.integers(0, 2**32))
def test_cosine_tracks_jaccard_similarity(shared: int, left_only: int, right_only: int, seed: int) -> None:
    common = text_of(shared, seed)
    left, right = f"{common} {text_of(left_only, seed + 1)}", f"{common} {text_of(right_only, seed + 2)}"
    embedder = one_window(4096)
    a, b = set(embedder.shingles(left).tolist()), set(embedder.shingles(right).tolist())
    if not a or not b:
        return
    cosine = float((embedder.embed(left) @ embedder.embed(right).T)[0, 0])
    assert cosine == pytest.approx(len(a & b) / len(a | b), abs=5 / np.sqrt(4096))


@given(st.text(max_size=400))
def test_rows_are_unit_length_finite_and_repeatable(text: str) -> None:
    embedder = JaccardEmbedder()
    rows = embedder.embed(text)
    assert rows.dtype == np.float32
    assert rows.shape[1] == embedder.dimensions == 384
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    assert (rows == JaccardEmbedder().embed(text)).all()


def test_text_without_words_has_no_windows() -> None:
    assert JaccardEmbedder().embed("  ... \n").shape == (0, 384)


def test_case_and_punctuation_do_not_matter() -> None:
    embedder = JaccardEmbedder()
    assert (embedder.embed("The cat, the dog!") == embedder.embed("the CAT the dog")).all()


def test_scripts_without_spaces_have_more_than_one_word() -> None:
    assert len(JaccardEmbedder().shingles("知識は力なり")) == 4


@pytest.mark.parametrize("preamble_words", [0, 7, 500, 3000])
def test_a_document_behind_a_preamble_is_as_similar_as_alone(preamble_words: int) -> None:
    embedder = JaccardEmbedder()
    document = text_of(1500, seed=1)
    donor = embedder.embed(document)
    moved = embedder.embed(f"{text_of(preamble_words, seed=2)} {document}")
    other = embedder.embed(text_of(1500, seed=3))
    assert np.median((donor @ moved.T).max(axis=1)) > 0.99
    assert (donor @ other.T).max() < 0.4


def test_one_word_in_a_hundred_changed_stays_similar() -> None:
    embedder = JaccardEmbedder()
    words = text_of(1500, seed=1).split()
    donor = embedder.embed(" ".join(words))
    words[::100] = ["changed"] * len(words[::100])
    assert np.median((donor @ embedder.embed(" ".join(words)).T).max(axis=1)) > 0.75
