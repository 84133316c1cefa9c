"""Bootstrap over units: known cases, and that draws are paired between policies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semantic_kv.experiment.figures import Tally
from semantic_kv.experiment.study import MIN_UNITS, interval_of, resample


def unit(hits: int, references: int = 100, ttft_ms: float = 100.0, requests: int = 1) -> Tally:
    return Tally(requests, references, hits, references * 10, hits * 10, ttft_ms * requests)


def test_few_units_give_no_interval() -> None:
    assert resample([unit(1)] * (MIN_UNITS - 1)) is None
    assert resample([unit(1)] * MIN_UNITS) is not None


def test_equal_units_give_an_interval_without_width() -> None:
    draws = resample([unit(25)] * 8)
    assert draws is not None
    assert interval_of(draws.hit_ratio) == pytest.approx((0.25, 0.25))
    assert interval_of(draws.ttft_ms) == pytest.approx((100.0, 100.0))


def test_a_known_case() -> None:
    """Of 100 units half hit everything: the interval of the mean is 0.5 within 1.96 standard errors."""
    draws = resample([unit(100 * (i % 2)) for i in range(100)])
    assert draws is not None
    low, high = interval_of(draws.hit_ratio)
    assert low == pytest.approx(0.5 - 1.96 * 0.05, abs=0.02)
    assert high == pytest.approx(0.5 + 1.96 * 0.05, abs=0.02)


def test_larger_units_weigh_more() -> None:
    draws = resample([unit(0, 1_000)] * 5 + [unit(10, 10)] * 5)
    assert draws is not None
    assert float(np.median(draws.hit_ratio)) < 0.05


@given(st.lists(st.integers(0, 100), min_size=5, max_size=30), st.integers(0, 40))
def test_draws_of_two_policies_are_paired(hits: list[int], gain: int) -> None:
    """A policy that is better by the same amount everywhere is better by it in every draw."""
    ours = resample([unit(min(100, each) + gain, 200) for each in hits])
    base = resample([unit(min(100, each), 200) for each in hits])
    assert ours is not None
    assert base is not None
    assert np.allclose(ours.hit_ratio - base.hit_ratio, gain / 200)
