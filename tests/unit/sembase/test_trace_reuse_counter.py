"""The reuse counter: the planner's guarantee from digests, donors and offsets, the exact count, and bounded memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.unit.sembase.exact_reuse import exact_reuse

from sembase.errors import ConfigurationError
from sembase.trace import reuse_counter
from sembase.trace.content_digests import GRAM, GUARANTEE
from sembase.trace.digest_tokens import PUBLIC_KEY, digest_key, digest_tokens
from sembase.trace.reuse_counter import (
    ANCHOR,
    MIN_MEMORY_BYTES,
    RequestReuse,
    ReuseCounter,
    anchor_hashes_vectorised,
)
from sembase.trace.reuse_tables import anchor_hashes

SEEDS = st.integers(0, 2**32 - 1)
Row = NDArray[np.int64]


def count(rows: list[Row], counter: ReuseCounter | None = None, key: bytes = PUBLIC_KEY) -> list[RequestReuse]:
    counter = counter or ReuseCounter(memory_bytes=MIN_MEMORY_BYTES)
    return [counter.add("t", digest_tokens(row, key)) for row in rows]


@settings(deadline=None, max_examples=200)
@given(
    seed=SEEDS,
    vocabulary=st.sampled_from([1, 2, 3, 50_000]),
    length=st.integers(GUARANTEE, 150),
    left=st.integers(0, 80),
    right=st.integers(0, 80),
    tenant=st.binary(min_size=1, max_size=8),
)
def test_any_repeated_run_of_64_tokens_is_seen(
    seed: int, vocabulary: int, length: int, left: int, right: int, tenant: bytes
) -> None:
    rng = np.random.default_rng(seed)
    run = rng.integers(0, vocabulary, length)
    donor = np.concatenate([rng.integers(100, 50_000, left), run, rng.integers(100, 50_000, 30)])
    recipient = np.concatenate([rng.integers(100, 50_000, right), run, rng.integers(100, 50_000, 50)])
    _, found = count([donor, recipient], key=digest_key(tenant))
    covered = np.zeros(len(recipient), bool)
    covered[: found.prefix_tokens] = True
    for _, donor_start, start, tokens in found.runs.tolist():
        covered[start : start + tokens] = True
        assert 0 <= donor_start <= len(donor) - tokens
    assert covered[right : right + length].all()
    assert found.reusable_tokens == covered.sum()


def mixture(seed: int, requests: int) -> list[Row]:
    """Sessions that grow, documents in changing order with new instructions, boilerplate, and pieces of documents."""
    rng = np.random.default_rng(seed)
    documents = [rng.integers(0, 30_000, rng.integers(80, 700)) for _ in range(12)]
    system = rng.integers(0, 30_000, 150)
    history: Row = system
    rows: list[Row] = []
    for number in range(requests):
        new = rng.integers(0, 30_000, rng.integers(5, 90))
        if number % 3 == 0:
            chosen = rng.permutation(len(documents))[:3]
            rows.append(np.concatenate([system, *(documents[i] for i in chosen), new]))
        elif number % 3 == 1:
            history = np.concatenate([history, new]) if len(history) < 3000 else np.concatenate([system, new])
            rows.append(history)
        else:
            piece = documents[int(rng.integers(12))]
            cut = int(rng.integers(0, len(piece)))
            rows.append(np.concatenate([new, piece[cut : cut + 200], rng.integers(0, 30_000, 40), piece[:cut]]))
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_it_counts_what_comparing_all_tokens_counts_within_one_percent(seed: int) -> None:
    rows = mixture(seed, 90)
    exact, found = exact_reuse(rows), count(rows, key=digest_key(bytes([seed])))
    prefix, either = (
        sum(values) for values in zip(*((f.prefix_tokens, f.reusable_tokens) for f in found), strict=True)
    )
    assert prefix == pytest.approx(exact.prefix.sum(), rel=0.01)
    assert either == pytest.approx(exact.either.sum(), rel=0.01)
    assert either - prefix == pytest.approx((exact.either - exact.prefix).sum(), rel=0.01)


def test_a_run_names_its_donor_and_both_places() -> None:
    rows = mixture(9, 60)
    for found in count(rows):
        row = rows[found.number]
        assert found.prompt_tokens == len(row)
        if found.prefix_donor is not None:
            n = found.prefix_tokens
            assert found.prefix_donor < found.number
            assert (rows[found.prefix_donor][: n - 4] == row[: n - 4]).all()
        end = found.prefix_tokens
        for donor, donor_start, start, length in found.runs.tolist():
            assert donor < found.number
            assert start >= end
            end = start + length
            inner = slice(4, max(4, length - 4))  # two bits per token: an end may be a few tokens too far
            assert (rows[donor][donor_start:][:length][inner] == row[start:][:length][inner]).all()
        assert end <= len(row)


def test_a_passage_that_moved_is_found_and_a_prefix_cache_does_not_see_it() -> None:
    rng = np.random.default_rng(5)
    passage = rng.integers(0, 50_000, 200)
    first, second = np.concatenate([rng.integers(0, 50_000, 7), passage]), np.concatenate([[1, 2, 3], passage, [4, 5]])
    found = count([first, second])[1]
    assert found.prefix_tokens == 0
    assert found.prefix_donor is None
    [[donor, donor_start, start, length]] = found.runs.tolist()
    assert donor == 0
    assert donor_start - start == 4
    assert abs(length - 200) <= 6


def test_prefixes_are_counted_in_whole_blocks() -> None:
    tokens = np.arange(1000)
    for block, whole in ((16, 992), (64, 960), (512, 512)):
        counter = ReuseCounter(memory_bytes=MIN_MEMORY_BYTES, block_tokens=block)
        found = count([tokens, tokens], counter)[1]
        assert found.prefix_tokens == whole
        assert found.prefix_donor == 0
        assert found.reusable_tokens == 1000


def test_short_prefixes_are_seen_too() -> None:
    rng = np.random.default_rng(2)
    start = rng.integers(0, 50_000, 48)
    rows = [np.concatenate([start, rng.integers(0, 50_000, 10 * n)]) for n in range(3)]
    assert [found.prefix_tokens for found in count(rows)] == [0, 48, 48]


def test_repeats_inside_one_request_do_not_count() -> None:
    assert count([np.tile(np.arange(100), 9)])[0].reusable_tokens == 0


@pytest.mark.parametrize("period", [1, 3, 20])
def test_periodic_text_is_covered_even_where_the_donor_has_less_of_it(period: int) -> None:
    def periodic(tokens: int) -> Row:
        return np.resize(np.arange(period), tokens)

    head, tail = np.arange(900, 930), np.arange(700, 730)
    donor, recipient = np.concatenate([head, periodic(500)]), np.concatenate([tail, periodic(2000), head])
    found = count([donor, recipient])[1]
    assert abs(found.reusable_tokens - 2000) <= 8
    assert len(found.runs) < 70


def test_namespaces_and_keys_share_nothing() -> None:
    tokens = np.random.default_rng(3).integers(0, 50_000, 5000)
    counter = ReuseCounter(memory_bytes=MIN_MEMORY_BYTES)
    names = ["a", "b", None, ("a", "model")]
    assert [counter.add(name, digest_tokens(tokens, PUBLIC_KEY)).reusable_tokens for name in names] == [0, 0, 0, 0]
    for secret in range(20):
        assert counter.add("a", digest_tokens(tokens, digest_key(bytes([secret])))).reusable_tokens == 0
    assert counter.add("a", digest_tokens(tokens, PUBLIC_KEY)).reusable_tokens == 5000


def test_empty_and_tiny_prompts_are_requests_too() -> None:
    rows = [np.arange(n) for n in (0, 1, 15, 16, 63, 64, 64)]
    assert [found.reusable_tokens for found in count(rows)] == [0, 0, 0, 0, 16, 48, 64]


def test_memory_is_bounded_and_what_was_forgotten_is_estimated() -> None:
    """Each request is new and returns once: soon after, or after more than the memory holds."""
    rng = np.random.default_rng(8)
    counter = ReuseCounter(memory_bytes=MIN_MEMORY_BYTES)
    seen: list[Row] = []
    missed = late = 0
    for number in range(1500):
        row = rng.integers(0, 2**31, 6000)
        if number >= 1000:
            late += 6000
            row = seen[number - 1000]
        seen.append(row)
        found = counter.add("t", digest_tokens(row, PUBLIC_KEY))
        assert counter.held_bytes <= MIN_MEMORY_BYTES
        missed += (6000 - found.reusable_tokens) if number >= 1000 else 0
        if number < 1000 and number % 50 == 0:
            again = counter.add("t", digest_tokens(row, PUBLIC_KEY))
            assert again.reusable_tokens == 6000
    assert counter.oldest_request > 0
    assert missed == late  # 6 million tokens do not fit
    assert counter.forgotten_tokens == pytest.approx(missed, rel=0.1)


def test_content_that_returns_is_not_forgotten() -> None:
    rng = np.random.default_rng(8)
    counter = ReuseCounter(memory_bytes=MIN_MEMORY_BYTES)
    shared = rng.integers(0, 2**31, 2000)
    for number in range(1200):
        row = np.concatenate([rng.integers(0, 2**31, 6000), shared])
        found = counter.add("t", digest_tokens(row, PUBLIC_KEY))
        assert number == 0 or abs(found.reusable_tokens - 2000) <= 8
    assert counter.oldest_request > 0
    assert counter.forgotten_tokens < 0.001 * 1200 * 8000  # anchors of 34 bits that are equal by chance


def test_a_growing_session_costs_its_distinct_tokens() -> None:
    rng = np.random.default_rng(1)
    counter = ReuseCounter(memory_bytes=MIN_MEMORY_BYTES)
    history: Row = rng.integers(0, 2**31, 50_000)
    for _ in range(300):  # 16 million prompt tokens, 65,000 of them distinct
        history = np.concatenate([history, rng.integers(0, 2**31, 50)])
        counter.add("t", digest_tokens(history, PUBLIC_KEY))
    assert counter.oldest_request == 0
    assert counter.held_bytes < 8 << 20


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="memory_bytes must be at least"):
        ReuseCounter(memory_bytes=1000)
    with pytest.raises(ConfigurationError, match="min_run_tokens must be at least 64"):
        ReuseCounter(min_run_tokens=63)
    with pytest.raises(ConfigurationError, match="block_tokens must be a multiple of 16"):
        ReuseCounter(block_tokens=24)


@settings(deadline=None)
@given(seed=SEEDS, tokens=st.integers(GUARANTEE, 400), vocabulary=st.sampled_from([1, 3, 50_000]))
def test_compiled_and_vectorised_anchors_agree(seed: int, tokens: int, vocabulary: int) -> None:
    rng = np.random.default_rng(seed)
    words = digest_tokens(rng.integers(0, vocabulary, tokens), PUBLIC_KEY).words()
    namespace = np.uint64(rng.integers(0, 2**63))
    expected = anchor_hashes_vectorised(words, tokens, namespace)
    first, stop = GRAM - 1, tokens - ANCHOR + 1
    bits = np.uint64((1 << 2 * ANCHOR) - 1)
    assert anchor_hashes(words, first, stop, bits, namespace).tolist() == expected.tolist()


def test_room_for_more_donors_changes_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of three turns, many more than the first donor slots: each turn replaces the one before it."""
    rng = np.random.default_rng(7)
    rows: list[Row] = []
    for _ in range(300):
        history = rng.integers(0, 30_000, 90)
        for _ in range(3):
            history = np.concatenate([history, rng.integers(0, 30_000, 40)])
            rows.append(history)
    roomy = count(rows)
    monkeypatch.setattr(reuse_counter, "_MIN_FREE_SLOTS", 0.0)  # grow only when no slot is free
    tight = count(rows)
    for one, other in zip(roomy, tight, strict=True):
        assert one[:4] == other[:4]
        assert one.runs.tolist() == other.runs.tolist()


@pytest.mark.parametrize(
    ("seed", "length", "left", "right"), [(576, 68, 65, 75), (1324, 67, 18, 47), (1400, 72, 29, 15)]
)
def test_a_run_of_one_repeated_token_is_seen_from_its_first_token(
    seed: int, length: int, left: int, right: int
) -> None:
    """By chance the digest before the run is equal too, and every 16th anchor alone gives runs that are too short."""
    rng = np.random.default_rng(seed)
    assert [int(rng.integers(*bounds)) for bounds in ((64, 151), (0, 81), (0, 81))] == [length, left, right]
    run = rng.integers(0, 1, length)
    donor = np.concatenate([rng.integers(100, 50_000, left), run, rng.integers(100, 50_000, 30)])
    recipient = np.concatenate([rng.integers(100, 50_000, right), run, rng.integers(100, 50_000, 50)])
    _, found = count([donor, recipient], key=digest_key(bytes([seed % 256])))
    starts = [start for _, _, start, _ in found.runs.tolist()]
    assert min(starts) <= right
