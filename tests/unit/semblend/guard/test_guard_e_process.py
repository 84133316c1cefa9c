"""The sequential test: false alarms under the null, delay after a change, and its laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semblend.guard.e_process import BETS, EProcess

MEAN = 0.02


def evidences(readings: np.ndarray, mean: float = MEAN) -> np.ndarray:
    """Many streams at once, [streams, readings]; the same recursion in numpy."""
    wealth = np.zeros((len(readings), len(BETS)))
    bets = np.asarray(BETS)
    best = np.zeros(len(readings))
    for count, column in enumerate(readings.T, 1):
        wealth = (wealth + 1.0 / (count * (count + 1.0))) * (1.0 + bets * (column[:, None] / mean - 1.0))
        best = np.maximum(best, wealth.mean(axis=1) + 1.0 / (count + 1.0))
    return best


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_the_vectorised_oracle_and_the_process_agree(readings: list[float]) -> None:
    process = EProcess(MEAN)
    best = max(process.observe(reading) for reading in readings)
    assert best == pytest.approx(evidences(np.array([readings]))[0], rel=1e-9)


@given(st.lists(st.floats(0, 1), max_size=30), st.floats(0.001, 0.5))
def test_no_bet_gains_on_average_under_the_null(past: list[float], mean: float) -> None:
    """The law behind the promise: given any past, the expectation over a null reading is what is there already."""
    process = EProcess(mean)
    for reading in past:
        process.observe(reading)
    before, outcomes = process.evidence, []
    for reading in (0.0, 1.0):
        copy = EProcess(mean, list(process.wealth), process.count)
        outcomes.append(copy.observe(reading))
    expected = (1.0 - mean) * outcomes[0] + mean * outcomes[1]
    assert expected == pytest.approx(before, rel=1e-9)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 1)), max_size=30), st.floats(0.001, 0.5), st.floats(0.1, 1))
def test_the_law_holds_with_a_mean_of_its_own_for_each_reading(
    past: list[tuple[float, float]], mean: float, part: float
) -> None:
    process = EProcess(mean)
    for reading, smaller in past:
        process.observe(reading, mean * smaller)
    outcomes = [EProcess(mean, list(process.wealth), process.count).observe(r, mean * part) for r in (0.0, 1.0)]
    expected = (1.0 - mean * part) * outcomes[0] + mean * part * outcomes[1]
    assert expected == pytest.approx(process.evidence, rel=1e-9)


@pytest.mark.parametrize("kind", ["coin", "beta", "drifting"])
def test_false_alarms_stay_under_alpha_however_long_one_looks(kind: str) -> None:
    random = np.random.default_rng(5)
    shape = (2000, 1000)
    if kind == "coin":
        readings = (random.random(shape) < MEAN).astype(float)
    elif kind == "beta":
        readings = random.beta(0.1, 0.1 * (1 / MEAN - 1), shape)
    else:  # the mean given the past moves, never above the null
        readings = (random.random(shape) < MEAN * (1 + np.sin(np.arange(shape[1]) / 30)) / 2).astype(float)
    best = evidences(readings)
    for alpha in (0.1, 0.01):
        alarms = int((best >= 1 / alpha).sum())
        assert alarms <= alpha * len(readings) + 3 * math.sqrt(alpha * len(readings))


@settings(max_examples=30)
@given(st.integers(0, 400), st.floats(0.06, 1.0), st.sampled_from([0.01, 0.0005]))
def test_a_change_is_found_within_the_stated_number(quiet: int, reading: float, alpha: float) -> None:
    """Even after a quiet time in which every reading was 0 and all bets lost."""
    process = EProcess(MEAN)
    for _ in range(quiet):
        process.observe(0.0)
    # One starting time with the best bet must reach 1/alpha: ln(bets (j)(j+1) / alpha) over the gain of that bet.
    gain = max(math.log1p(bet * (reading / MEAN - 1.0)) for bet in BETS)
    limit = math.ceil(math.log(len(BETS) * (quiet + 1) * (quiet + 2) / alpha) / gain)
    seen = next(n for n in range(1, limit + 2) if process.observe(reading) >= 1 / alpha)
    assert seen <= limit


def test_evidence_stays_finite_and_wrong_input_is_refused() -> None:
    process = EProcess(MEAN)
    for _ in range(2000):
        process.observe(1.0)
    assert math.isfinite(process.evidence)
    for wrong in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            process.observe(wrong)
    with pytest.raises(ValueError, match="between 0 and 1"):
        EProcess(0.0)
    for wrong in (0.0, 2 * MEAN):
        with pytest.raises(ValueError, match="mean of a reading"):
            process.observe(0.5, wrong)
    with pytest.raises(ValueError, match="per bet"):
        EProcess(MEAN, [math.inf] * len(BETS))
