"""Laws of the drawing: axes hold their values, everything stays inside, labels do not overlap."""

from __future__ import annotations

import html
import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.onepage.chart import Axis, Bar, Bars, Chart, Curve, DataTable, Dot, Dots, Rule, Whisker, Whiskers
from sembase.onepage.formats import tick_ms
from sembase.onepage.frame import Width, frame_of
from sembase.onepage.page import style_of
from sembase.onepage.png import chart_png, light_style, rasteriser
from sembase.onepage.svg import svg
from sembase.onepage.ticks import category_axis, doubling_axis, linear_axis, log_axis

POSITIVE = st.floats(1e-6, 1e7)
TABLE = DataTable(("a",), (("1",),))


@given(st.lists(POSITIVE, min_size=1, max_size=20))
def test_logarithmic_axes_hold_their_values_and_have_ticks(values: list[float]) -> None:
    for axis in (log_axis("", values, tick_ms), doubling_axis("", values, tick_ms)):
        assert axis.low <= min(values) <= max(values) <= axis.high
        assert len(axis.ticks) >= 2
        assert all(axis.low * (1 - 1e-9) <= tick.value <= axis.high * (1 + 1e-9) for tick in axis.ticks)
    assert len(log_axis("", values, tick_ms).ticks) <= 15


@given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_linear_axes_hold_their_ends(low: float, width: float) -> None:
    axis = linear_axis("", low, low + width, lambda value: f"{value:g}")
    hair = 1e-6 * (axis.high - axis.low)
    assert axis.low - hair <= low <= low + width <= axis.high + hair
    assert 2 <= len(axis.ticks) <= 12
    assert all(math.isfinite(tick.value) for tick in axis.ticks)


def chart_of(values: list[float]) -> Chart:
    names = [f"transform_number_{i}" for i in range(len(values))]
    axis = log_axis("speedup", values, str)
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


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_bars_and_intervals_stay_inside(width: Width) -> None:
    names = ["lru", "a_policy_with_a_name_that_is_rather_long"]
    bars = Bars("b", "c1", tuple(Bar(i, 50.0 * i, "50.00 ms", "told", low=1.0, high=60.0) for i in range(2)))
    x = linear_axis("x", 0.0, 60.0, str)
    chart = Chart("k", "t", "m", x, category_axis(names), (bars, Rule(55.0, "bound", vertical=True)), TABLE)
    frame = frame_of(chart, width)
    drawn = svg(chart, frame, "id")
    for value in re.findall(r'(?:x|x1|x2|cx)="(-?[\d.]+)"', drawn):
        assert -1 <= float(value) <= frame.width
    for value in re.findall(r'(?:y|y1|y2|cy)="(-?[\d.]+)"', drawn):
        assert -1 <= float(value) <= frame.height


def test_figures_are_drawn_over_rules() -> None:
    bars = Bars("b", "c1", (Bar(0, 50.0, "50 ms", "told"),))
    x, rule = linear_axis("x", 0.0, 60.0, str), Rule(55.0, "bound", vertical=True)
    chart = Chart("k", "t", "m", x, category_axis(["lru"], ["lru"]), (rule, bars), TABLE)
    drawn = svg(chart, frame_of(chart, "wide"), "id")
    assert drawn.index('class="rule') < drawn.index(">50 ms<")
    assert 'class="name strong"' in drawn


def test_a_curve_is_one_path() -> None:
    curve = Curve("c", "c2", ((0.0, 0.0), (1.0, 1.0)), dashed=True)
    chart = Chart("k", "t", "m", linear_axis("", 0, 1, str), linear_axis("", 0, 1, str), (curve,), TABLE)
    assert 'class="curve c2 dashed"' in svg(chart, frame_of(chart, "wide"), "id")


def test_notes_of_vertical_rules_have_a_line_each() -> None:
    axis = linear_axis("", 0.0, 1.0, str)
    rules = (Rule(0.5, "one", vertical=True), Rule(0.51, "other", vertical=True, dashed=True))
    chart = Chart("k", "t", "m", axis, axis, rules, TABLE)
    frame = frame_of(chart, "wide")
    drawn = svg(chart, frame, "id")
    heights = [float(y) for y in re.findall(r'y="([\d.]+)" class="note"', drawn)]
    assert heights[0] - heights[1] == 14
    assert 0 < min(heights) < max(heights) < frame.top
    assert 'class="rule muted dashed"' in drawn


def test_a_bar_of_nothing_has_no_width_and_a_small_one_is_seen() -> None:
    bars = Bars("", "c1", (Bar(0, 0.0, "0", "x"), Bar(1, 1e-6, "few", "x"), Bar(2, 10.0, "", "x", start=5.0)))
    chart = Chart("k", "t", "m", Axis("", 0.0, 10.0), category_axis(["a", "b", "c"], dense=True), (bars,), TABLE)
    drawn = svg(chart, frame_of(chart, "wide"), "id")
    widths = [float(width) for width in re.findall(r'<rect [^>]*?width="([\d.]+)"', drawn)]
    assert widths[0] == 0
    assert widths[1] == 0.6
    assert drawn.count('class="value"') == 2


def parts_of(entries: int, letters: int, tone: str = "muted") -> Chart:
    names = [f"{number:02d}" + "w" * (letters - 2) for number in range(entries)]
    axis = linear_axis("x", 0.0, 10.0, str)
    layers = tuple(Curve(name, tone, ((0.0, 0.0), (1.0, 1.0))) for name in names)
    return Chart("k", "t", "$ < & >", axis, axis, layers, TABLE)


def drawn_as(chart: Chart) -> str:
    seen: list[str] = []

    def keep(svg_string: str, **_: object) -> bytes:
        seen.append(svg_string)
        return b""

    chart_png(chart, style_of("sembench.report"), keep)
    return seen[0]


def test_every_layer_becomes_a_picture() -> None:
    pytest.importorskip("resvg_py")
    axis = linear_axis("x", 0.0, 10.0, str)
    layers = (
        Bars("bars", "reuse", (Bar(0, 5.0, "$5", "x", low=4.0, high=6.0),), thin=True),
        Dots("dots", "miss", (Dot(1.0, 0.0),), "ring"),
        Curve("curve", "muted", ((0.0, 0.0), (1.0, 1.0)), dashed=True),
        Whiskers("whiskers", "ink", (Whisker(2.0, 1.0, None, None, "x"),), horizontal=True),
        Rule(3.0, "rule", vertical=True, tone="bad", dashed=True),
    )
    rows, rasterise, style = (
        category_axis(["a", "b"], ["a"], dense=True),
        rasteriser("x", "a test"),
        style_of("sembench.report"),
    )
    whole = chart_png(Chart("k", "t", "m", axis, rows, layers, TABLE), style, rasterise)
    assert whole.startswith(b"\x89PNG")
    for left_out in range(len(layers)):
        fewer = (*layers[:left_out], *layers[left_out + 1 :])
        assert chart_png(Chart("k", "t", "m", axis, rows, fewer, TABLE), style, rasterise) != whole


def test_a_tone_has_its_colour_in_a_picture() -> None:
    pytest.importorskip("resvg_py")
    style, rasterise = style_of("sembench.report"), rasteriser("x", "a test")
    pictures = {chart_png(parts_of(1, 3, tone), style, rasterise) for tone in ("cold", "reuse", "bad", "ink")}
    assert len(pictures) == 4


@pytest.mark.parametrize("letters", [3, 15, 26, 60])
@pytest.mark.parametrize("entries", [2, 5, 6, 12])
def test_a_legend_stays_inside_its_picture(entries: int, letters: int) -> None:
    """By the letters' mean width, as the layout of the chart itself."""
    picture = ElementTree.fromstring(drawn_as(parts_of(entries, letters)))
    width = float(picture.attrib["width"])
    (body,) = (each for each in picture if each.tag.endswith("}g"))
    named = [each for each in body if each.tag.endswith("}text")]
    assert len(named) == entries
    for each in named:
        assert float(each.attrib["x"]) + len(each.text or "") * 7.0 <= width or float(each.attrib["x"]) == 22.0
    assert len({(each.attrib["x"], each.attrib["y"]) for each in named}) == entries


@pytest.mark.parametrize("package", ["sembench.report", "semantic_kv.report"])
def test_a_picture_has_light_colours_and_no_variable(package: str) -> None:
    style = light_style(style_of(package))
    assert "var(" not in style
    assert "@" not in style
    assert "svg .ink { color: #16202c; }" in style
    assert style.count("{") == style.count("}")


def rule_chart(dots: list[tuple[float, float]], level: float) -> Chart:
    x, y = linear_axis("x", 0.0, 100.0, str), linear_axis("y", 0.0, 10.0, str)
    marks = Dots("d", "reuse", tuple(Dot(*at, "x") for at in dots))
    spread = Whiskers("w", "ink", tuple(Whisker(*at, at[1] - 1, at[1] + 1, "x") for at in dots))
    return Chart("k", "t", "m", x, y, (Rule(level, "equal"), marks, spread), TABLE)


def label_box(drawn: str, width: float) -> tuple[float, float, float, float]:
    ((x, y),) = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="note" text-anchor="end">equal<', drawn)
    return float(x) - width, float(y) - 10, float(x), float(y)


@given(
    st.lists(st.tuples(st.floats(0, 100), st.floats(1, 9)), max_size=4),
    st.floats(0, 10),
    st.sampled_from(["wide", "narrow"]),
)
def test_the_label_of_a_rule_touches_no_mark(dots: list[tuple[float, float]], level: float, width: Width) -> None:
    """Four marks cannot fill the rule's whole length on either page."""
    chart = rule_chart(dots, level)
    frame = frame_of(chart, width)
    left, top, right, bottom = label_box(svg(chart, frame, "i"), frame.text_width("equal"))
    assert frame.left <= left
    assert right <= frame.right
    for x, y in ((frame.x(dot[0]), dot[1]) for dot in dots):
        for half, low, high in ((5, frame.y(y) + 5, frame.y(y) - 5), (2, frame.y(y - 1), frame.y(y + 1))):
            assert x + half <= left + 0.1 or x - half >= right - 0.1 or low <= top + 0.1 or high >= bottom - 0.1


def test_a_rule_without_a_free_place_keeps_its_label_at_the_right() -> None:
    everywhere = [(float(x), 0.5 * y) for x in range(0, 101, 2) for y in range(2, 19)]
    chart = rule_chart(everywhere, 5.0)
    frame = frame_of(chart, "narrow")
    _, _, right, bottom = label_box(svg(chart, frame, "i"), 1.0)
    assert (right, bottom) == pytest.approx((frame.right - 4, frame.y(5.0) - 5))


def test_names_of_rows_are_drawn_over_the_rule_that_runs_through_them() -> None:
    chart = chart_of([1.0, 2.0])
    drawn = svg(chart, frame_of(chart, "narrow"), "id")
    assert drawn.index('class="rule') < drawn.index(">transform_number_0<")
