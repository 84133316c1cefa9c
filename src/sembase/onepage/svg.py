"""A chart -> SVG. Colours are classes, so the page's style sheet themes them; hand-made, because a plotting library
writes fixed colours into its SVG and cannot be themed by ``prefers-color-scheme`` nor kept within a strict CSP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sembase.onepage.chart import Bars, Chart, Curve, Dots, Layer, Rule, Series, Whiskers
from sembase.onepage.frame import Frame
from sembase.onepage.label_place import place_label
from sembase.onepage.markup import Safe, tag

_MAX_NAMED_DOTS: Final = 600  # more dots are one path: small, but without a name each


def svg(chart: Chart, frame: Frame, identity: str) -> Safe:
    """Rules are drawn over bars, which would hide them, and under everything else. Text comes last."""
    bars = [layer for layer in chart.layers if isinstance(layer, Bars)]
    rules = [layer for layer in chart.layers if isinstance(layer, Rule)]
    others = [layer for layer in chart.layers if not isinstance(layer, Bars | Rule)]
    return tag(
        "svg",
        tag("title", chart.title, id=f"{identity}-t"),
        tag("desc", chart.message, id=f"{identity}-d"),
        _grid(frame, lined=not bars),
        *(_draw(layer, frame) for layer in (*bars, *rules, *others)),
        *(tag("g", *_values(layer, frame)) for layer in bars),
        tag("g", *_names(frame)),
        *_rule_labels(rules, chart.layers, frame),
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        aria_labelledby=f"{identity}-t {identity}-d",
    )


def _grid(frame: Frame, *, lined: bool) -> Safe:
    parts: list[Safe] = []
    free_from = float("-inf")
    for tick in frame.x_axis.ticks:
        x = frame.x(tick.value)
        parts.append(tag("line", x1=x, x2=x, y1=frame.top, y2=frame.bottom, class_="grid"))
        left, right = frame.span(x, tick.label)
        if left < free_from:
            continue  # two labels in one place would be unreadable: this line goes without
        free_from = right + 8
        anchor = frame.anchor(x, tick.label)
        parts.append(tag("text", tick.label, x=x, y=frame.bottom + 16, class_="tick", text_anchor=anchor))
    if frame.x_axis.label:
        middle = (frame.left + frame.right) / 2
        label = tag("text", frame.x_axis.label, x=middle, y=frame.bottom + 34, class_="axis", text_anchor="middle")
        parts.append(label)
    parts.extend(_rows(frame, lined) if frame.y_axis.categories else _levels(frame))
    return tag("g", *parts)


def _rows(frame: Frame, lined: bool) -> Iterator[Safe]:
    for place in range(len(frame.y_axis.categories)) if lined and frame.x_axis.ticks else ():
        y = frame.y(place)
        yield tag("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_="row")


def _names(frame: Frame) -> Iterator[Safe]:
    """Of the rows. On a narrow page they are inside the plot, where a rule may run through them."""
    for place, name in enumerate(frame.y_axis.categories):
        y, kind = frame.y(place), "name strong" if name in frame.y_axis.emphasised else "name"
        if frame.labels_above:
            yield tag("text", name, x=frame.left, y=frame.top + place * frame.row_height + 12, class_=kind)
        else:
            yield tag("text", name, x=frame.left - 10, y=y + 4, class_=kind, text_anchor="end")


def _levels(frame: Frame) -> Iterator[Safe]:
    for tick in frame.y_axis.ticks:
        y = frame.y(tick.value)
        yield tag("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_="grid")
        yield tag("text", tick.label, x=frame.left - 8, y=y + 4, class_="tick", text_anchor="end")
    if frame.y_axis.label:
        yield tag("text", frame.y_axis.label, x=4, y=12, class_="axis")


def _draw(layer: Layer, frame: Frame) -> Safe:
    if isinstance(layer, Dots):
        return _dots(layer, frame)
    if isinstance(layer, Curve):
        path = "M" + "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in layer.points)
        return tag("path", tag("title", layer.name) if layer.name else None, d=path, class_=_line_class("curve", layer))
    if isinstance(layer, Whiskers):
        return tag("g", *_whiskers(layer, frame), class_=f"whiskers {layer.tone}")
    if isinstance(layer, Bars):
        return tag("g", *_bars(layer, frame), class_=f"bars {layer.tone}")
    if layer.vertical:
        x = frame.x(layer.value)
        return tag("line", x1=x, x2=x, y1=frame.top, y2=frame.bottom, class_=_line_class("rule", layer))
    y = frame.y(layer.value)
    return tag("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_=_line_class("rule", layer))


def _line_class(kind: str, layer: Curve | Rule) -> str:
    return f"{kind} {layer.tone}{' dashed' if layer.dashed else ''}"


def _rule_labels(rules: list[Rule], layers: Sequence[Layer], frame: Frame) -> Iterator[Safe]:
    """Labels of vertical rules above the plot, each on its own line, because rules may be close together."""
    y = frame.top - 5
    for rule in rules:
        if rule.vertical:
            x = frame.x(rule.value)
            yield tag("text", rule.label, x=x, y=y, class_="note", text_anchor=frame.anchor(x, rule.label))
            y -= 14
        elif rule.label:
            x, level = place_label(rule, layers, frame)
            yield tag("text", rule.label, x=x, y=level, class_="note", text_anchor="end")


def _dots(layer: Dots, frame: Frame) -> Safe:
    classes = f"dots {layer.tone} {layer.mark}"
    if len(layer.dots) > _MAX_NAMED_DOTS:
        path = "".join(f"M{frame.x(dot.x):.1f} {frame.y(dot.y):.1f}h0" for dot in layer.dots)
        return tag("path", d=path, class_=f"{classes} cloud")
    shapes = (
        _shape(layer, frame.x(dot.x), frame.y(dot.y), tag("title", dot.label) if dot.label else None)
        for dot in layer.dots
    )
    return tag("g", *shapes, class_=classes)


def _shape(layer: Dots, x: float, y: float, title: Safe | None = None) -> Safe:
    if layer.mark == "diamond":
        return tag("path", title, d=f"M{x:.1f} {y - 4.6:.1f}l4.6 4.6l-4.6 4.6l-4.6 -4.6z")
    return tag("circle", title, cx=round(x, 1), cy=round(y, 1), r=3.4)


def _whiskers(layer: Whiskers, frame: Frame) -> Iterator[Safe]:
    for each in layer.whiskers:
        x, y, title = frame.x(each.x), frame.y(each.y), tag("title", each.label)
        if each.low is not None and each.high is not None:
            if layer.horizontal:
                yield tag("line", x1=frame.x(each.low), x2=frame.x(each.high), y1=y, y2=y)
            else:
                yield tag("line", x1=x, x2=x, y1=frame.y(each.low), y2=frame.y(each.high))
        yield tag("circle", title, cx=x, cy=y, r=5)


def _bars(layer: Bars, frame: Frame) -> Iterator[Safe]:
    for bar in layer.bars:
        first, last = sorted((frame.x(bar.start), frame.x(bar.end)))
        width = max(0.6, last - first) if bar.start != bar.end else 0.0
        y, thick = frame.y(bar.y), frame.bar_height * (0.6 if layer.thin else 1.0)
        yield tag("rect", tag("title", bar.label), x=first, y=y - thick / 2, width=width, height=thick, rx=2)
        if bar.low is not None and bar.high is not None:
            low, high = frame.x(bar.low), frame.x(bar.high)
            yield tag("path", d=f"M{low:.1f} {y:.1f}H{high:.1f}M{low:.1f} {y - 3:.1f}v6M{high:.1f} {y - 3:.1f}v6")


def _values(layer: Bars, frame: Frame) -> Iterator[Safe]:
    """Drawn above everything else: a line through a number could be misread."""
    for bar in layer.bars:
        if bar.text:
            reach = frame.x(max(bar.start, bar.end, bar.high or bar.end))
            yield tag("text", bar.text, x=reach + 6, y=frame.y(bar.y) + 4, class_="value")


def swatch(layer: Series) -> Safe:
    """What a legend shows of a layer."""
    if isinstance(layer, Dots):
        inner = tag("g", _shape(layer, 8.0, 6.0), class_=f"dots {layer.tone} {layer.mark}")
    elif isinstance(layer, Curve):
        inner = tag("path", d="M1 6h14", class_=_line_class("curve", layer))
    elif isinstance(layer, Whiskers):
        line = tag("line", x1=1, x2=15, y1=6, y2=6)
        inner = tag("g", line, tag("circle", cx=8, cy=6, r=4), class_=f"whiskers {layer.tone}")
    else:
        inner = tag("g", tag("rect", x=1, y=2, width=14, height=8, rx=2), class_=f"bars {layer.tone}")
    return tag("svg", inner, viewBox="0 0 16 12", class_="swatch", aria_hidden="true")
