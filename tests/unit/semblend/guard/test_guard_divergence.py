"""The lower bound of KL from the likeliest few, against the whole distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend.guard.divergence import kl_lower_bound


def top(p: np.ndarray, k: int) -> dict[str, float]:
    return {str(i): math.log(p[i]) for i in np.argsort(-p)[:k]}


def kl(p: np.ndarray, q: np.ndarray) -> float:
    return float((p * np.log(p / q)).sum())


@given(st.integers(0, 10**6), st.integers(1, 30), st.floats(0.01, 3.0), st.floats(0.0, 3.0))
def test_never_above_the_true_kl(seed: int, k: int, spread: float, noise: float) -> None:
    random = np.random.default_rng(seed)
    logits = random.normal(0, 3 * spread, 40)
    other = logits + random.normal(0, noise, 40)
    p, q = (np.exp(each) / np.exp(each).sum() for each in (logits, other))
    assert 0.0 <= kl_lower_bound(top(p, k), top(q, k)) <= kl(p, q) + 1e-9


@given(st.integers(0, 10**6))
def test_whole_lists_give_the_whole_kl(seed: int) -> None:
    p, q = np.random.default_rng(seed).dirichlet(np.ones(20), 2)
    p, q = (np.maximum(each, 1e-6) / np.maximum(each, 1e-6).sum() for each in (p, q))
    assert kl_lower_bound(top(p, 20), top(q, 20)) == pytest.approx(kl(p, q), abs=1e-6)


def test_lists_without_a_common_token_are_far_apart() -> None:
    cold = {str(i): math.log(0.95 / 20) for i in range(20)}
    blended = {str(100 + i): math.log(0.95 / 20) for i in range(20)}
    assert kl_lower_bound(cold, blended) > 2.0
    assert kl_lower_bound(cold, cold) == pytest.approx(0.0, abs=1e-12)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        kl_lower_bound({}, {"a": -0.1})
