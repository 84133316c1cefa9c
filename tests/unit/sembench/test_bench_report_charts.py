"""Laws of the drawing: text comes back as it went in, axes hold their values, labels do not stand on one another."""

from __future__ import annotations

import html
import math
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepage.chart import Axis, Bar, Bars, Chart, Curve, DataTable, Dot, Dots, Rule, Whisker, Whiskers
from onepage.formats import MINUS, NOT_MEASURED, fraction, tick_ms
from onepage.frame import Width, frame_of
from onepage.markup import Safe, escape, tag
from onepage.svg import svg
from onepage.ticks import category_axis, doubling_axis, linear_axis, log_axis
from sembench.report.differences import RATES, rate_difference
from sembench.report.estimates import Estimate, bootstrap, median_estimate, wilson
from sembench.report.formats import TIMES, milliseconds, nats, percent, plain, points, ratio, tick_ratio

POSITIVE = st.floats(1e-6, 1e7)
TABLE = DataTable(("a",), (("1",),))


class Texts(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= dict(attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Cn"))))
def test_any_text_comes_back_as_text(text: str) -> None:
    read = Texts(tag("p", text, title=text))
    assert read.tags == ["p"]
    assert read.text == text
    assert read.attributes == {"title": text}


@given(st.text())
def test_nothing_unshowable_or_unencodable_gets_out(text: str) -> None:
    shown = escape(text)
    shown.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", shown)
    assert "<" not in shown
    assert '"' not in shown


def test_what_is_markup_already_is_not_escaped_twice() -> None:
    assert tag("b", tag("i", "&")) == "<b><i>&amp;</i></b>"
    assert tag("p", ["a", [Safe("<br>"), None], "<"], hidden=True, title=None, class_="c") == (
        '<p hidden class="c">a<br>&lt;</p>'
    )


@given(st.lists(POSITIVE, min_size=1, max_size=20))
def test_logarithmic_axes_hold_their_values_and_have_ticks(values: list[float]) -> None:
    for axis in (log_axis("", values, tick_ms), doubling_axis("", values, tick_ms)):
        assert axis.low <= min(values) <= max(values) <= axis.high
        assert len(axis.ticks) >= 2
        assert all(axis.low * (1 - 1e-9) <= tick.value <= axis.high * (1 + 1e-9) for tick in axis.ticks)


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_linear_axes_hold_their_ends(low: float, width: float) -> None:
    axis = linear_axis("", low, low + width, lambda value: f"{value:g}")
    hair = 1e-6 * (axis.high - axis.low)
    assert axis.low - hair <= low <= low + width <= axis.high + hair
    assert len(axis.ticks) >= 2
    assert all(math.isfinite(tick.value) for tick in axis.ticks)


def chart_of(values: list[float]) -> Chart:
    names = [f"transform_number_{i}" for i in range(len(values))]
    axis = log_axis("speedup", values, tick_ratio)
    return Chart(
        "k",
        "A <title>",
        "m",
        axis,
        category_axis(names),
        (
            Rule(values[0], "equal", vertical=True),
            Dots("d", "reuse", tuple(Dot(v, float(i), "x") for i, v in enumerate(values))),
            Dots("e", "negative", tuple(Dot(v, float(i), "x") for i, v in enumerate(values)), "diamond"),
            Whiskers("w", "accent", tuple(Whisker(v, float(i), v, None, "x") for i, v in enumerate(values)), True),
        ),
        TABLE,
    )


@given(st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=15), st.sampled_from(["wide", "narrow"]))
def test_everything_is_drawn_inside_and_labels_keep_their_distance(values: list[float], width: Width) -> None:
    frame = frame_of(chart_of(values), width)
    drawn = svg(chart_of(values), frame, "id")
    for x, y in re.findall(r'<circle cx="([\d.-]+)" cy="([\d.-]+)"', drawn):
        assert frame.left - 0.1 <= float(x) <= frame.right + 0.1
        assert 0 <= float(y) <= frame.height
    ticks = re.findall(r'<text x="([\d.]+)" y="[\d.]+" class="tick" text-anchor="(\w+)">([^<]+)<', drawn)
    spans = [frame.span(float(x), html.unescape(label)) for x, _, label in ticks]
    assert spans
    assert all(left >= -1 and right <= frame.width + 1 for left, right in spans)
    assert all(before[1] < after[0] for before, after in pairwise(spans))


def test_many_dots_become_one_path_and_hostile_labels_stay_text() -> None:
    dots = tuple(Dot(1.0 + i, 1.0, "<script>") for i in range(601))
    axis = log_axis("", [1.0, 700.0], tick_ms)
    layers = (Dots("many", "reuse", dots), Curve("", "muted", ((1.0, 1.0), (2.0, 2.0)), dashed=True))
    drawn = svg(Chart("k", "<script>", "<script>", axis, axis, layers, TABLE), frame_of(chart_of([1.0]), "wide"), "i")
    assert "circle" not in drawn
    assert drawn.count("h0") == 601
    few = Chart("k", "t", "m", axis, axis, (Dots("few", "reuse", dots[:2]),), TABLE)
    assert "<script>" not in svg(few, frame_of(few, "wide"), "i") + drawn


def test_bars_start_at_zero_and_leave_room_for_their_text() -> None:
    bars = Bars("", "accent", (Bar(0, 10.0, "10 requests", "x"), Bar(1, 5.0, "5", "x")))
    chart = Chart("k", "t", "m", Axis("", 0.0, 10.0), category_axis(["a", "b"]), (bars,), TABLE)
    frame = frame_of(chart, "wide")
    widths = [
        float(width) for width in re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)"', svg(chart, frame, "i"))
    ]
    assert widths == pytest.approx([frame.right - frame.left, (frame.right - frame.left) / 2], abs=0.01)
    assert frame.right + 6 + len("10 requests") * 6 <= frame.width


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


def test_a_rate_nobody_measured_has_no_difference() -> None:
    found = rate_difference(RATES[0], [])
    assert (found.a, found.b, found.difference) == (None, None, None)
