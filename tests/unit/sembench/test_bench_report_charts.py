"""How figures are written, and the intervals around them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.onepage.formats import MINUS, NOT_MEASURED, fraction, tick_ms
from sembench.report.differences import RATES, rate_difference
from sembench.report.estimates import Estimate, bootstrap, median_estimate, wilson
from sembench.report.formats import TIMES, milliseconds, nats, percent, plain, points, ratio


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (percent(None), NOT_MEASURED),
        (percent(0.0), "0 %"),
        (percent(0.0001), "< 0.1 %"),
        (percent(1.0), "100 %"),
        (percent(0.9996), "100 %"),
        (percent(0.1234), "12.3 %"),
        (points(-0.012), f"{MINUS}1.2 pp"),
        (milliseconds(None), NOT_MEASURED),
        (milliseconds(0.123), "0.12 ms"),
        (milliseconds(12.34), "12.3 ms"),
        (milliseconds(1234.5), "1,234 ms"),
        (milliseconds(-5.0), f"{MINUS}5.00 ms"),
        (milliseconds(12_345.0), "12.3 s"),
        (ratio(1.849), f"1.85{TIMES}"),
        (ratio(12.34), f"12.3{TIMES}"),
        (nats(0.0), "0"),
        (nats(0.000021), f"2.1e{MINUS}5"),
        (nats(0.0123), "0.012"),
        (fraction(None, 3), NOT_MEASURED),
        (fraction(1234, 5678), "1,234 / 5,678"),
        (plain(True), "yes"),
        (plain(None), NOT_MEASURED),
        (tick_ms(0), "0"),
        (tick_ms(2500), "2.5 s"),
    ],
)
def test_figures_are_written_so_that_nothing_reads_like_zero_that_is_not(shown: str, wanted: str) -> None:
    assert shown == wanted


@given(st.lists(st.floats(0.1, 100), min_size=6, max_size=40))
def test_intervals_of_medians_hold_the_median_and_few_values_have_none(values: list[float]) -> None:
    found = median_estimate(values)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert min(values) <= found.low <= found.value <= found.high <= max(values)
    assert median_estimate(values[:5]) == Estimate(5, sorted(values[:5])[2])
    assert median_estimate([]) is None
    assert bootstrap(0, lambda drawn: drawn.sum(axis=1)) is None


@given(st.integers(0, 200), st.integers(1, 200))
def test_wilson_stays_between_0_and_1_around_the_share(successes: int, more: int) -> None:
    found = wilson(successes, successes + more)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0
    assert wilson(0, 0) is None


def test_a_rate_that_was_not_measured_has_no_difference() -> None:
    found = rate_difference(RATES[0], [])
    assert (found.a, found.b, found.difference) == (None, None, None)
