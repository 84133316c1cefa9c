"""Non-negative least squares against every choice of bounds tried out, and what robustness is for."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semantic_kv.calibrate.solve import non_negative, robust_non_negative, unexplained_fraction

Floats = npt.NDArray[np.float64]


def _by_trying_all(matrix: Floats, target: Floats) -> float:
    """The least squared error over all sets of coefficients that may differ from zero."""
    count, best = matrix.shape[1], float(target @ target)
    for size in range(1, count + 1):
        for chosen in itertools.combinations(range(count), size):
            found = np.linalg.lstsq(matrix[:, chosen], target, rcond=None)[0]
            if (found >= 0).all():
                best = min(best, float(((matrix[:, chosen] @ found - target) ** 2).sum()))
    return best


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_no_choice_of_bounds_does_better(seed: int, count: int) -> None:
    draws = np.random.default_rng(seed)
    matrix = draws.normal(size=(12, count)) * 10.0 ** draws.integers(-3, 4, size=count)
    target = draws.normal(size=12)

    found = non_negative(matrix, target)

    assert (found >= 0).all()
    assert float(((matrix @ found - target) ** 2).sum()) == pytest.approx(_by_trying_all(matrix, target), rel=1e-6)


def test_two_columns_that_say_the_same_still_fit() -> None:
    column = np.arange(1.0, 9.0)
    found = non_negative(np.column_stack([column, 2 * column]), 6 * column)

    assert found[0] + 2 * found[1] == pytest.approx(6.0)


def test_a_few_wild_rows_do_not_move_a_robust_fit() -> None:
    draws = np.random.default_rng(1)
    matrix = np.column_stack([np.ones(60), np.arange(60.0)])
    target = matrix @ np.array([20.0, 3.0]) + draws.normal(0, 1, 60)
    target[[7, 30, 51]] += 2_000.0

    robust = robust_non_negative(matrix, target, np.ones(60))
    plain = non_negative(matrix, target)

    assert robust == pytest.approx([20.0, 3.0], rel=0.1)
    assert abs(plain[0] - 20.0) > 50.0


def test_weight_zero_takes_a_row_out() -> None:
    matrix = np.ones((5, 1))
    weights = np.array([1.0, 1.0, 1.0, 1.0, 0.0])

    assert robust_non_negative(matrix, np.array([2.0, 2.0, 2.0, 2.0, 900.0]), weights).tolist() == [2.0]


def test_what_the_other_columns_can_say_is_not_unexplained() -> None:
    ones, line = np.ones(10), np.arange(10.0)

    assert unexplained_fraction(np.column_stack([ones, line, 3 * line + 2]), 2) == pytest.approx(0.0, abs=1e-12)
    assert unexplained_fraction(np.column_stack([ones, line]), 1) == pytest.approx(82.5 / 285)
