"""Axes and drawings: round ticks, everything inside the frame, figures never read like zero when they are not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepage.chart import Bar, Bars, Chart, Curve, DataTable, Rule
from onepage.frame import frame_of
from onepage.markup import tag
from onepage.svg import svg
from onepage.ticks import category_axis, linear_axis, log_axis
from semantic_kv.report.ablation import heat
from semantic_kv.report.formats import change, milliseconds, percent, tick_count

NOTHING = DataTable((), ())


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_linear_ticks_are_few_and_inside(low: float, width: float) -> None:
    axis = linear_axis("x", low, low + width, lambda value: f"{value:g}")
    assert axis.low < axis.high
    rounding = 1e-9 * max(1.0, abs(low), abs(low + width))
    assert axis.low <= low + rounding
    assert axis.high >= low + width - rounding
    assert len(axis.ticks) <= 12
    assert all(axis.low - 1e-6 <= tick.value <= axis.high + 1e-6 * max(1.0, abs(axis.high)) for tick in axis.ticks)


@given(st.lists(st.floats(0.01, 1e9), min_size=1, max_size=5))
def test_log_ticks_are_few_and_inside(values: list[float]) -> None:
    axis = log_axis("x", values, tick_count)
    assert axis.low < min(values)
    assert axis.high > max(values)
    assert len(axis.ticks) <= 15
    assert all(axis.low <= tick.value <= axis.high for tick in axis.ticks)


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_drawings_stay_inside(width: str) -> None:
    names = ["lru", "a_policy_with_a_name_that_is_rather_long"]
    bars = Bars("b", "c1", tuple(Bar(i, 50.0 * i, "50.00 ms", "told", low=1.0, high=60.0) for i in range(2)))
    x = linear_axis("x", 0.0, 60.0, str)
    chart = Chart("k", "t", "m", x, category_axis(names), (bars, Rule(55.0, "bound", vertical=True)), NOTHING)
    frame = frame_of(chart, width)  # type: ignore[arg-type]
    drawn = svg(chart, frame, "id")
    for value in re.findall(r'(?:x|x1|x2|cx)="(-?[\d.]+)"', drawn):
        assert -1 <= float(value) <= frame.width
    for value in re.findall(r'(?:y|y1|y2|cy)="(-?[\d.]+)"', drawn):
        assert -1 <= float(value) <= frame.height


def test_figures_are_drawn_over_rules() -> None:
    bars = Bars("b", "c1", (Bar(0, 50.0, "50 ms", "told"),))
    x, rule = linear_axis("x", 0.0, 60.0, str), Rule(55.0, "bound", vertical=True)
    chart = Chart("k", "t", "m", x, category_axis(["lru"], ["lru"]), (rule, bars), NOTHING)
    drawn = svg(chart, frame_of(chart, "wide"), "id")
    assert drawn.index('class="rule') < drawn.index(">50 ms<")
    assert 'class="name strong"' in drawn


def test_a_curve_is_one_path() -> None:
    curve = Curve("c", "c2", ((0.0, 0.0), (1.0, 1.0)), dashed=True)
    chart = Chart("k", "t", "m", linear_axis("", 0, 1, str), linear_axis("", 0, 1, str), (curve,), NOTHING)
    assert 'class="curve c2 dashed"' in svg(chart, frame_of(chart, "wide"), "id")


def test_what_is_not_zero_never_reads_like_zero() -> None:
    assert percent(0.0001) == "< 0.1 %"
    assert percent(-0.0001) == "> \N{MINUS SIGN}0.1 %"
    assert percent(0.0) == "0.0 %"
    assert percent(None) == "not measured"
    assert change(-0.0114, 2) == "\N{MINUS SIGN}1.14 %"
    assert milliseconds(149.94) == "149.94 ms"
    assert [tick_count(value) for value in (500, 5_000, 2e6)] == ["500", "5K", "2M"]


def test_heat_grows_with_the_gain_and_is_cold_within_a_tie() -> None:
    assert [heat(gain) for gain in (0.0005, 0.01, 0.05, 0.2, 0.5)] == [0, 1, 2, 3, 4]
    assert [heat(-gain) for gain in (0.0005, 0.01, 0.5)] == [0, -1, -4]


def test_markup_escapes_attributes_and_text() -> None:
    assert tag("p", "<&>", title='"x"') == '<p title="&quot;x&quot;">&lt;&amp;&gt;</p>'
