"""What is kept of a donor's attention: small, faithful, and read by what a recipient no longer has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend.contract import ContextRisk, Run
from semblend.plan.leaning import (
    MAX_PARTS,
    PART_TOKENS,
    SINKS,
    Leaning,
    kept_before,
    leaning_layers,
    lost_context,
    pack,
    part_tokens,
    unpack,
)


def run(donor_start: int, target_start: int, length: int = 10, donor: str = "donor") -> Run:
    return Run(donor, donor_start, target_start, length, ContextRisk(0, 0, 0.0))


@given(st.integers(1, 200_000))
def test_no_donor_keeps_more_than_the_largest_row(tokens: int) -> None:
    size = part_tokens(tokens)
    assert size % PART_TOKENS == 0
    assert -(-tokens // size) <= MAX_PARTS


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=50))
def test_bytes_keep_small_and_large_attention_apart(values: list[float]) -> None:
    attention = np.array(values, np.float32)
    kept = unpack(pack(attention))
    # Half a step of the root, twice over: 0.004 at the most, 0.000004 of next to nothing.
    assert (np.abs(kept - attention) <= np.sqrt(attention) / 255 + 1 / 510**2 + 1e-6).all()
    assert (np.diff(pack(np.sort(attention)).astype(int)) >= 0).all()


def attended(tokens: int, seed: int) -> np.ndarray:
    """Causal attention of every token: rows that sum up to 1."""
    drawn = np.tril(np.random.default_rng(seed).random((tokens, tokens)) ** 8)
    drawn[SINKS:, :SINKS] = 0.0
    whole: np.ndarray = (drawn / drawn.sum(axis=1, keepdims=True)).astype(np.float32)
    return whole


def kept_of(attention: np.ndarray) -> Leaning:
    tokens = len(attention)
    size = part_tokens(tokens)
    parts = -(-tokens // size)
    padded = np.zeros((tokens, parts * size), np.float32)
    padded[:, :tokens] = attention
    return Leaning(size, pack(padded.reshape(tokens, parts, size).sum(axis=2)), np.arange(tokens, dtype=np.uint32))


def of_rows(rows: np.ndarray) -> Leaning:
    return Leaning(PART_TOKENS, rows, np.arange(len(rows), dtype=np.uint32))


@given(st.integers(0, 20), st.sets(st.integers(0, 11)), st.integers(0, 100))
def test_leaning_on_whole_parts_is_the_attention_to_their_tokens(seed: int, parts: set[int], start: int) -> None:
    attention = attended(200, seed)
    lost = np.zeros(12 * PART_TOKENS, np.bool_)
    for part in parts:
        lost[part * PART_TOKENS : (part + 1) * PART_TOKENS] = True
    expected = attention[start : start + 80, : len(lost)] @ lost
    assert np.abs(kept_of(attention).on(lost, start, 80) - expected).max() < 0.01


def test_a_part_that_is_lost_by_half_counts_by_half() -> None:
    rows = pack(np.full((40, 3), 0.5, np.float32))
    lost = np.zeros(2 * PART_TOKENS, np.bool_)
    lost[-PART_TOKENS // 2 :] = True
    assert of_rows(rows).on(lost, 30, 4) == pytest.approx(0.25, abs=0.01)


def test_tokens_after_the_last_known_one_have_none() -> None:
    rows = pack(np.full((20, 2), 0.5, np.float32))
    found = of_rows(rows).on(np.ones(16, np.bool_), 16, 8)
    assert found[:4] == pytest.approx(0.5, abs=0.01)
    assert not found[4:].any()
    assert not of_rows(rows).on(np.ones(0, np.bool_), 0, 20).any(), "nothing is before the run"


def test_context_is_lost_unless_a_run_brings_it_along() -> None:
    first, second = run(10, 30), run(20, 60)
    lost = lost_context(second, [first, second])
    assert np.flatnonzero(lost).tolist() == list(range(SINKS, 10))
    # The same text, now after the run: what was read from it is not there any more.
    assert np.flatnonzero(lost_context(second, [run(10, 80), second])).tolist() == list(range(SINKS, 20))
    # Another donor's run brings other text along.
    others = [run(10, 30, donor="other"), second]
    assert np.flatnonzero(lost_context(second, others)).tolist() == list(range(SINKS, 20))
    assert np.flatnonzero(lost_context(second, [first, second], kept_prefix=8)).tolist() == [8, 9]


@given(st.integers(1, 200))
def test_the_layers_are_in_the_model(layers: int) -> None:
    found = leaning_layers(layers)
    assert len(found) == min(5, layers)
    assert set(found) <= set(range(layers))


def test_the_layers_of_the_measured_model() -> None:
    assert list(leaning_layers(30)) == [12, 13, 14, 15, 16]


def test_equal_text_right_before_a_run_is_kept_though_it_was_not_loaded() -> None:
    donor = Leaning(PART_TOKENS, np.zeros((60, 4), np.uint8), np.arange(60, dtype=np.uint32))
    ids = np.concatenate([np.full(10, 99), np.arange(25, 50)])  # the donor's text from 25 on, after other text
    assert kept_before(run(40, 5 + 10 + 15), donor, ids, 5) == 15
    assert kept_before(run(25, 5 + 10), donor, ids, 5) == 0
    assert kept_before(run(40, 30), donor, ids[10:], 15) == 15, "as far as the recipient is known"
    assert kept_before(run(40, 0), donor, ids, 0) == 0
    assert kept_before(run(80, 30), donor, ids, 5) == 0, "more of the donor than was measured"
