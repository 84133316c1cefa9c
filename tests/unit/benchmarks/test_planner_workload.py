"""The workload every subject gets: reproducible by number, and honest about what in a prompt is reusable."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.discovery.oracle import Oracle
from benchmarks.planner.prompts import CASES, PromptMaker
from benchmarks.planner.subject import FoundRun
from benchmarks.planner.tokens import DONOR_TOKENS, HEAD_TOKENS, VOCABULARY, TokenSource, ZipfSource
from benchmarks.planner.worker import Score


@pytest.fixture(params=[0, HEAD_TOKENS], ids=["plain", "headed"])
def source(request: pytest.FixtureRequest) -> TokenSource:
    return ZipfSource(seed=3, head_tokens=request.param)


def test_a_donor_is_the_same_alone_and_in_a_batch(source: TokenSource) -> None:
    batch = source.donors(10, 20)

    assert batch.shape == (10, DONOR_TOKENS)
    for offset in range(10):
        assert np.array_equal(batch[offset], source.donors(10 + offset, 11 + offset)[0])


def test_donors_share_their_head_and_nothing_else(source: TokenSource) -> None:
    first, second = source.donors(0, 2)
    body = source.head.size

    assert np.array_equal(first[:body], second[:body])
    assert not Oracle([first[body:]]).ask(second[body:]).reusable.any()
    assert not Oracle([first]).ask(source.fresh(1, 5_000)).reusable.any()


def test_tokens_follow_zipf_within_the_vocabulary() -> None:
    counts = np.bincount(ZipfSource().donors(0, 200).ravel(), minlength=VOCABULARY)
    ranked = np.sort(counts)[::-1]

    assert counts.size == VOCABULARY
    assert ranked[0] / ranked[9] == pytest.approx(10, rel=0.1)
    assert (counts > 0).sum() > 20_000


@pytest.mark.parametrize("case", CASES)
def test_a_prompt_says_where_its_tokens_come_from(source: TokenSource, case: str) -> None:
    prompt = PromptMaker(source, donor_count=50).make(case, 8_192)

    for donor in set(prompt.donor_of.tolist()) - {-1}:
        mine = prompt.donor_of == donor
        assert np.array_equal(prompt.tokens[mine], source.donors(donor, donor + 1)[0, prompt.position_of[mine]])
    expected = 8_192 if case in {"miss", "composed"} else DONOR_TOKENS
    assert abs(prompt.tokens.size - expected) <= 64
    assert not prompt.reusable[-1]
    assert prompt.reusable.any() == (case != "miss" and (case != "head_only" or source.head.size > 0))


def test_the_score_counts_found_missed_and_wrong_tokens() -> None:
    source = ZipfSource(seed=3)
    prompt = PromptMaker(source, donor_count=5).make("shifted_7", DONOR_TOKENS)
    donor = int(prompt.donor_of[-1])
    score = Score()

    score.add(prompt, [FoundRun(donor, 0, 7, 1_000)], source)
    score.add(prompt, [FoundRun(donor, 1, 7, 1_000)], source)

    assert score.reusable == 2 * (DONOR_TOKENS - 8)
    assert score.found == 2_000
    assert 900 < score.wrong <= 1_000


def test_tokens_of_an_unnamed_donor_are_not_measured_rather_than_right() -> None:
    source = ZipfSource(seed=3)
    prompt = PromptMaker(source, donor_count=5).make("shifted_7", DONOR_TOKENS)
    score = Score()

    score.add(prompt, [FoundRun(-1, 0, 7, 256)], source)

    assert score.as_record()["wrong"] is None
    assert score.found == 256
