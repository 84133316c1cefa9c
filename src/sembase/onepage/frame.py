"""Layout of a chart: values to pixels, for a wide and a narrow page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from sembase.onepage.chart import Axis, Bars, Chart, Rule

Width = Literal["wide", "narrow"]
_PIXELS: Final[dict[Width, int]] = {"wide": 540, "narrow": 344}
_PLOT_HEIGHT: Final[dict[Width, int]] = {"wide": 262, "narrow": 232}
_LETTER: Final = 6.8  # mean width of a letter of 12 px, generous: digits have 6.5 to 7 in the fonts of most systems
_NOTE: Final = 14.0  # a line of notes above the plot


@dataclass(frozen=True, slots=True)
class Frame:
    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    x_axis: Axis
    y_axis: Axis
    row_height: float = 0.0
    labels_above: bool = False

    def x(self, value: float) -> float:
        return self.left + _share(self.x_axis, value) * (self.right - self.left)

    def y(self, value: float) -> float:
        if self.y_axis.categories:
            lower = 0.68 if self.labels_above else 0.5
            return self.top + (value + lower) * self.row_height
        return self.bottom - _share(self.y_axis, value) * (self.bottom - self.top)

    @property
    def bar_height(self) -> float:
        return min(16.0, self.row_height * 0.55)

    def text_width(self, text: str) -> float:
        return len(text) * _LETTER

    def span(self, x: float, label: str) -> tuple[float, float]:
        """First and last pixel of a label at ``x``."""
        whole = self.text_width(label)
        shift = {"start": 0.0, "middle": whole / 2, "end": whole}[self.anchor(x, label)]
        return x - shift, x - shift + whole

    def anchor(self, x: float, label: str) -> Literal["start", "middle", "end"]:
        """Labels at an edge stay inside."""
        half = self.text_width(label) / 2
        if x + half > self.width - 2:
            return "end"
        return "start" if x - half < 2 else "middle"


def frame_of(chart: Chart, width: Width) -> Frame:
    pixels = _PIXELS[width]
    notes = sum(isinstance(layer, Rule) and layer.vertical for layer in chart.layers)
    right_text = max(
        (len(bar.text) for layer in chart.layers if isinstance(layer, Bars) for bar in layer.bars), default=0
    )
    right = pixels - (12 + (right_text * _LETTER + 8 if right_text else 0))
    below = 42 if chart.x.label else 24 if chart.x.ticks else 4
    if chart.y.categories:
        above = width == "narrow"
        row_height = _row_height(chart, above)
        longest = max(len(name) for name in chart.y.categories) * _LETTER + 14
        left = 6.0 if above else min(246.0 if chart.y.dense else 190.0, longest)
        top = 6.0 + _NOTE * notes
        bottom = top + row_height * len(chart.y.categories)
        return Frame(pixels, math.ceil(bottom + below), left, right, top, bottom, chart.x, chart.y, row_height, above)
    top = 26.0 + (4.0 + _NOTE * notes if notes else 0.0)
    left = max((len(tick.label) for tick in chart.y.ticks), default=3) * _LETTER + 16
    bottom = top + _PLOT_HEIGHT[width]
    return Frame(pixels, math.ceil(bottom + below), left, right, top, bottom, chart.x, chart.y)


def _row_height(chart: Chart, labels_above: bool) -> float:
    if any(isinstance(layer, Bars) and layer.thin for layer in chart.layers):
        return 48.0 if labels_above else 31.0
    if chart.y.dense:
        return 38.0 if labels_above else 24.0
    return 42.0 if labels_above else 30.0


def _share(axis: Axis, value: float) -> float:
    """Position on the axis, 0 to 1; values outside are drawn at the edge."""
    held = min(max(value, axis.low), axis.high)
    if axis.log:
        return math.log(held / axis.low) / math.log(axis.high / axis.low)
    return (held - axis.low) / (axis.high - axis.low)
