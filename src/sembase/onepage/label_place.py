"""Where the label of a horizontal rule fits without touching what is drawn: layers in, a point out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from sembase.onepage.chart import Bars, Curve, Dots, Layer, Rule, Whiskers
from sembase.onepage.frame import Frame

_STEP: Final = 6.0
_MARK: Final = 5.0  # half the width of the largest dot
_ASCENT: Final = 10.0
_DESCENT: Final = 3.0

Box = tuple[float, float, float, float]  # left, top, right, bottom


def place_label(rule: Rule, layers: Sequence[Layer], frame: Frame) -> tuple[float, float]:
    """Right end and baseline of the label: as far right as is free, above the rule or else below it.

    At the right end above the rule if no place is free.
    """
    level, width = frame.y(rule.value), frame.text_width(rule.label)
    marks = [box for layer in layers for box in _boxes(layer, frame)]
    first = frame.right - 4
    for step in range(int((first - width - frame.left) / _STEP) + 1):
        right = first - step * _STEP
        for baseline in (level - 5, level + 14):
            label = (right - width, baseline - _ASCENT, right, baseline + _DESCENT)
            is_inside = label[1] >= frame.top and label[3] <= frame.bottom
            if is_inside and not any(_touch(label, mark) for mark in marks):
                return right, baseline
    return first, level - 5


def _boxes(layer: Layer, frame: Frame) -> Iterator[Box]:
    if isinstance(layer, Dots):
        yield from (_around(frame.x(dot.x), frame.y(dot.y)) for dot in layer.dots)
    elif isinstance(layer, Curve):
        points = [(frame.x(x), frame.y(y)) for x, y in layer.points]
        for (x, y), (to_x, to_y) in pairwise(points):
            yield min(x, to_x), min(y, to_y), max(x, to_x), max(y, to_y)
    elif isinstance(layer, Whiskers):
        for each in layer.whiskers:
            x, y = frame.x(each.x), frame.y(each.y)
            yield _around(x, y)
            if each.low is None or each.high is None:
                continue
            if layer.horizontal:
                yield frame.x(each.low), y - 2, frame.x(each.high), y + 2
            else:
                yield x - 2, frame.y(each.high), x + 2, frame.y(each.low)
    elif isinstance(layer, Bars):
        half = frame.bar_height / 2
        for bar in layer.bars:
            start, end = sorted((frame.x(bar.start), frame.x(bar.end)))
            yield start, frame.y(bar.y) - half, end, frame.y(bar.y) + half


def _around(x: float, y: float) -> Box:
    return x - _MARK, y - _MARK, x + _MARK, y + _MARK


def _touch(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
