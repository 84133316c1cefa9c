"""A chart -> SVG. Colours are classes, so the page's style sheet themes them; hand-made, because a plotting library
writes fixed colours into its SVG and cannot follow ``prefers-color-scheme`` nor be kept within a strict CSP.
"""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.report.chart import Bars, Chart, Curve, Dots, Layer, Rule
from semantic_kv.report.frame import Frame
from semantic_kv.report.markup import Safe, tag


def svg(chart: Chart, frame: Frame, identity: str) -> Safe:
    rules = [layer for layer in chart.layers if isinstance(layer, Rule)]
    return tag(
        "svg",
        tag("title", chart.title, id=f"{identity}-t"),
        tag("desc", chart.message, id=f"{identity}-d"),
        _grid(frame),
        *(_draw(layer, frame) for layer in chart.layers if not isinstance(layer, Rule)),
        *(_draw(layer, frame) for layer in rules),
        *(tag("g", *_values(layer, frame)) for layer in chart.layers if isinstance(layer, Bars)),
        *_rule_labels(rules, frame),
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        aria_labelledby=f"{identity}-t {identity}-d",
    )


def _grid(frame: Frame) -> Safe:
    parts: list[Safe] = []
    free_from = float("-inf")
    for tick in frame.x_axis.ticks:
        x = frame.x(tick.value)
        parts.append(tag("line", x1=x, x2=x, y1=frame.top, y2=frame.bottom, class_="grid"))
        left, right = frame.span(x, tick.label)
        if left < free_from:
            continue  # a line without its label says less, but two labels in one place say nothing
        free_from = right + 8
        anchor = frame.anchor(x, tick.label)
        parts.append(tag("text", tick.label, x=x, y=frame.bottom + 16, class_="tick", text_anchor=anchor))
    if frame.x_axis.label:
        middle = (frame.left + frame.right) / 2
        at = {"x": middle, "y": frame.bottom + 34}
        parts.append(tag("text", frame.x_axis.label, **at, class_="axis", text_anchor="middle"))
    parts.extend(_rows(frame) if frame.y_axis.categories else _levels(frame))
    return tag("g", *parts)


def _rows(frame: Frame) -> Iterator[Safe]:
    for place, name in enumerate(frame.y_axis.categories):
        kind = "name strong" if name in frame.y_axis.emphasised else "name"
        if frame.labels_above:
            yield tag("text", name, x=frame.left, y=frame.top + place * frame.row_height + 13, class_=kind)
        else:
            yield tag("text", name, x=frame.left - 10, y=frame.y(place) + 4, class_=kind, text_anchor="end")


def _levels(frame: Frame) -> Iterator[Safe]:
    for tick in frame.y_axis.ticks:
        y = frame.y(tick.value)
        yield tag("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_="grid")
        yield tag("text", tick.label, x=frame.left - 8, y=y + 4, class_="tick", text_anchor="end")
    if frame.y_axis.label:
        yield tag("text", frame.y_axis.label, x=4, y=12, class_="axis")


def _draw(layer: Layer, frame: Frame) -> Safe:
    if isinstance(layer, Dots):
        shapes = (tag("circle", cx=frame.x(x), cy=frame.y(y), r=3.2) for x, y in layer.points)
        return tag("g", *shapes, class_=f"dots {layer.tone}{' hollow' if layer.hollow else ''}")
    if isinstance(layer, Curve):
        path = "M" + "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in layer.points)
        title = tag("title", layer.name) if layer.name else None
        return tag("path", title, d=path, class_=f"curve {layer.tone}{' dashed' if layer.dashed else ''}")
    if isinstance(layer, Bars):
        return tag("g", *_bars(layer, frame), class_=f"bars {layer.tone}")
    if layer.vertical:
        x = frame.x(layer.value)
        return tag("line", x1=x, x2=x, y1=frame.top, y2=frame.bottom, class_=f"rule {layer.tone}")
    y = frame.y(layer.value)
    return tag("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_=f"rule {layer.tone}")


def _rule_labels(rules: list[Rule], frame: Frame) -> Iterator[Safe]:
    """Vertical ones above the plot, each on a line of its own: bounds lie close together."""
    line = 0
    for rule in rules:
        if rule.vertical:
            x = frame.x(rule.value)
            line += 1
            y = frame.top - 4 - 14 * (line - 1)
            yield tag("text", rule.label, x=x, y=y, class_="note", text_anchor=frame.anchor(x, rule.label))
        else:
            at = {"x": frame.right - 4, "y": frame.y(rule.value) - 5}
            yield tag("text", rule.label, **at, class_="note", text_anchor="end")


def _bars(layer: Bars, frame: Frame) -> Iterator[Safe]:
    for bar in layer.bars:
        first, last = sorted((frame.x(bar.start), frame.x(bar.end)))
        y, thick = frame.y(bar.y), frame.bar_height * (0.6 if layer.thin else 1.0)
        title = tag("title", bar.label)
        yield tag("rect", title, x=first, y=y - thick / 2, width=max(0.6, last - first), height=thick, rx=1.5)
        if bar.low is not None and bar.high is not None:
            low, high = frame.x(bar.low), frame.x(bar.high)
            yield tag("path", d=f"M{low:.1f} {y:.1f}H{high:.1f}M{low:.1f} {y - 3:.1f}v6M{high:.1f} {y - 3:.1f}v6")


def _values(layer: Bars, frame: Frame) -> Iterator[Safe]:
    """Above everything else: a line through a figure makes it another figure."""
    for bar in layer.bars:
        if bar.text:
            reach = frame.x(max(bar.start, bar.end, bar.high or bar.end))
            yield tag("text", bar.text, x=reach + 6, y=frame.y(bar.y) + 4, class_="value")


def swatch(layer: Dots | Curve | Bars) -> Safe:
    """What a legend shows of a layer."""
    if isinstance(layer, Dots):
        inner = tag("g", tag("circle", cx=8, cy=6, r=3.4), class_=f"dots {layer.tone}{' hollow' * layer.hollow}")
    elif isinstance(layer, Curve):
        inner = tag("path", d="M1 6h14", class_=f"curve {layer.tone}{' dashed' if layer.dashed else ''}")
    else:
        inner = tag("g", tag("rect", x=1, y=2, width=14, height=8, rx=2), class_=f"bars {layer.tone}")
    return tag("svg", inner, viewBox="0 0 16 12", class_="swatch", aria_hidden="true")
