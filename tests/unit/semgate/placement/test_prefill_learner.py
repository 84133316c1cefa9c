from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from semgate.placement import Observed, Price
from semgate.placement.learner import PrefillLearner

PRIOR = Price(80.0, 0.08)


def observe(learner: PrefillLearner, count: int, slope: float, base: float, seed: int, wild: float = 0.0) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        prompt, cached = int(rng.integers(100, 8_000)), int(rng.integers(0, 100))
        ahead = int(rng.integers(0, 4_000))
        ttft = base + slope * (prompt - cached + ahead) * rng.uniform(0.95, 1.05)
        if rng.uniform() < wild:
            ttft *= rng.choice([0.01, 50.0])
        learner.learn(Observed(prompt, ahead, cached, ttft))


def test_it_starts_from_the_prior_and_keeps_it_while_nothing_is_observed() -> None:
    learner = PrefillLearner(PRIOR)
    assert learner.price == PRIOR
    observe(learner, 31, 0.5, 10.0, 0)
    assert learner.price == PRIOR
    same = PrefillLearner(PRIOR)
    for _ in range(300):
        same.learn(Observed(1_000, 0, 0, 500.0))
    assert same.price == PRIOR  # requests of one size say nothing about the price of a token


@settings(max_examples=8, deadline=None)
@given(st.floats(0.005, 2.0), st.floats(0.0, 500.0), st.integers(0, 1_000))
def test_it_finds_the_price_in_spite_of_wild_observations(slope: float, base: float, seed: int) -> None:
    learner = PrefillLearner(PRIOR)
    observe(learner, 400, slope, base, seed, wild=0.15)
    assert learner.price.ms_per_token == pytest.approx(slope, rel=0.15)
    assert learner.price.source == "learnt"


def test_it_follows_a_change_within_one_window() -> None:
    learner = PrefillLearner(PRIOR, window=128)
    observe(learner, 200, 0.05, 20.0, 1)
    observe(learner, 128, 0.4, 20.0, 2)
    assert learner.price.ms_per_token == pytest.approx(0.4, rel=0.1)


def test_what_the_head_of_the_queue_had_done_is_not_charged() -> None:
    """Each joined behind 10,000 tokens of which half were done: at 0.08 ms that is 400 ms of age."""
    learner = PrefillLearner(PRIOR)
    rng = np.random.default_rng(5)
    for _ in range(256):
        prompt, done = int(rng.integers(100, 5_000)), int(rng.integers(0, 10_000))
        ttft = 50.0 + 0.08 * (prompt + 10_000 - done)
        learner.learn(Observed(prompt, 10_000, 0, ttft, head_tokens=10_000, head_age_ms=0.08 * done))
    assert learner.price.ms_per_token == pytest.approx(0.08, rel=0.02)
    assert learner.price.base_ms == pytest.approx(50.0, rel=0.1)


@pytest.mark.parametrize("slope", [1e-9, 1e6])
def test_it_never_leaves_the_reach_of_its_prior(slope: float) -> None:
    learner = PrefillLearner(PRIOR)
    observe(learner, 300, slope, 1.0, 4)
    assert 0.08 / 50.0 <= learner.price.ms_per_token <= 0.08 * 50.0


def test_it_refuses_what_is_no_measurement() -> None:
    learner = PrefillLearner(PRIOR)
    for ttft in (math.nan, math.inf, 0.0, -5.0):
        learner.learn(Observed(100, 0, 0, ttft))
    learner.learn(Observed(100, 0, 200, 5.0))
    learner.learn(Observed(100, -1, 0, 5.0))
    assert (learner.seen, learner.refused) == (0, 6)
    with pytest.raises(ConfigurationError, match="at least 32"):
        PrefillLearner(PRIOR, window=8)
