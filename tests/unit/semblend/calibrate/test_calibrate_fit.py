"""A known law is found again; too few items give none; the judgement counts what it says."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from semblend.calibrate.fit import fit, judge_held
from semblend.calibrate.observations import Observation, decode_observations, encode_observation
from semblend.contract import PlanShape
from semblend.plan.deviation_curve import preset_curve

CURVE = preset_curve("llama", 4)
SHARES = (0.0, 0.1, 0.2, 0.4)


def observed(items: int, seed: int = 0, noise: float = 0.0, decay: float = 5.0, first: int = 0) -> list[Observation]:
    random = np.random.default_rng(seed)
    found = []
    for item in range(first, first + items):
        risk, luck = random.uniform(0.1, 0.9), math.exp(noise * random.normal())
        for share in SHARES:
            kl = 0.001 + 0.15 * risk * luck * math.exp(-decay * share)
            found.append(Observation(f"i{item}", PlanShape.REORDER, risk, share, kl))
    return found


def test_a_law_without_noise_is_found_exactly() -> None:
    law = fit(observed(20), CURVE, 0.001, 0.9, "test").laws[PlanShape.REORDER]
    assert (law.scale, law.decay, law.factor) == pytest.approx((0.15, 5.0, 1.0), rel=1e-6)
    assert law.items == 20


def test_observations_of_two_policies_are_not_fitted_together() -> None:
    mixed = [replace(seen, policy="question" if n % 2 else None) for n, seen in enumerate(observed(20))]
    assert fit(mixed, CURVE, 0.001, 0.9, "test").policy == "question"
    with pytest.raises(ConfigurationError, match="several policies \\(first, question\\)"):
        fit([*mixed, replace(mixed[0], policy="first")], CURVE, 0.001, 0.9, "test")


def test_new_items_stay_below_the_prediction_about_as_often_as_asked() -> None:
    calibration = fit(observed(200, 1, 0.6), CURVE, 0.001, 0.9, "test")
    held = judge_held(calibration, observed(400, 2, 0.6, first=1000), 0.02)
    assert 1500 < held.observations <= held.items * len(SHARES) == 1600  # none is predicted beyond the largest risk
    assert 0.82 <= held.covered / held.observations <= 0.97
    assert held.rank_correlation is not None
    assert 0.6 < held.rank_correlation < 1.0
    assert 0 < held.served <= held.items
    assert held.served_over_ceiling <= 0.15 * held.items


def test_the_gate_never_serves_more_than_one_that_knew_when_the_law_is_exact() -> None:
    held = judge_held(fit(observed(20), CURVE, 0.001, 0.9, "test"), observed(50, 3, first=100), 0.012)
    assert held.served_over_ceiling == 0
    assert held.served_mean_kl is not None
    assert 0.0 < held.served_mean_kl <= 0.012
    assert 0 < held.served <= held.oracle_served < held.items
    assert held.rank_correlation == pytest.approx(1.0)


@given(st.integers(1, 12), st.sampled_from([0.5, 0.8, 0.9]))
def test_too_few_items_for_the_quantile_give_no_law(items: int, quantile: float) -> None:
    laws = fit(observed(items), CURVE, 0.001, quantile, "test").laws
    assert bool(laws) == (math.ceil((items + 1) * quantile) <= items)


def test_a_budget_that_seems_to_harm_is_taken_for_noise() -> None:
    law = fit(observed(20, decay=-2.0), CURVE, 0.001, 0.9, "test").laws[PlanShape.REORDER]
    assert law.decay == 0.0


def test_observations_are_read_back_and_others_refused() -> None:
    seen = observed(3)
    assert decode_observations([encode_observation(each) for each in seen] + [""], "f") == seen
    for line in ("{", "[]", '{"item": "a"}', encode_observation(seen[0]).replace("reorder", "x"), '{"kl": NaN}'):
        with pytest.raises(ConfigurationError, match="f, line 1"):
            decode_observations([line], "f")
    with pytest.raises(ConfigurationError):
        fit(seen, CURVE, 0.0, 1.0, "test")
