"""A donor computed again: rounding passes, one wrong page of one layer does not."""

from __future__ import annotations

import numpy as np
import pytest

from semblend.fleet.audit import MAX_DEVIATION, Rows, deviation

WHOLE = [(0, 300)]


def rows(seed: int = 1) -> Rows:
    return np.random.default_rng(seed).normal(size=(4, 2, 300, 2, 16))


def test_rounding_of_another_machine_passes() -> None:
    true = rows()
    rounded = true * (1 + np.random.default_rng(2).normal(scale=0.02, size=true.shape))
    assert 0.0 < deviation(rounded, true, WHOLE) < MAX_DEVIATION / 4
    assert deviation(true, true, WHOLE) == 0.0


@pytest.mark.parametrize("layer", [0, 3])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("page", [0, 4])
def test_one_wrong_page_of_one_layer_is_found(layer: int, side: int, page: int) -> None:
    wrong = rows()
    part = slice(64 * page, 64 * page + 64)
    wrong[layer, side, part] = wrong[layer, side, part][::-1]
    assert deviation(wrong, rows(), WHOLE) > MAX_DEVIATION


def test_rows_that_were_not_fetched_do_not_count() -> None:
    part = np.zeros_like(rows())
    part[:, :, 64:128] = rows()[:, :, 64:128]
    assert deviation(part, rows(), [(64, 128)]) == 0.0
    assert deviation(part, rows(), [(64, 129)]) > MAX_DEVIATION


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_numbers_that_are_none_and_missing_rows_are_wrong(value: float) -> None:
    wrong = rows()
    wrong[2, 1, 70] = value
    assert deviation(wrong, rows(), WHOLE) > (0.05 if value == 0.0 else MAX_DEVIATION)
    assert deviation(np.full_like(rows(), value), rows(), WHOLE) > MAX_DEVIATION
