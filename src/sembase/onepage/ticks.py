"""Round numbers for axes, linear or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from sembase.onepage.chart import Axis, Tick

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_FINE: Final = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)


def linear_axis(label: str, low: float, high: float, form: Callable[[float], str], wanted: int = 5) -> Axis:
    """An axis that covers the values, with ticks at round steps."""
    if not high - low > max(1e-12, 1e-9 * max(abs(low), abs(high))):
        high = low + max(1.0, 1e-6 * abs(low))
    step = _step((high - low) / wanted)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    room = 0.06 * (high - low)
    start, end = max(first * step, low - room), min(last * step, high + room)
    inside = [i * step for i in range(first, last + 1) if start - 1e-9 * step <= i * step <= end + 1e-9 * step]
    return Axis(label, start, end, tuple(Tick(mark, form(round(mark, 12))) for mark in inside))


def log_axis(label: str, values: Sequence[float], form: Callable[[float], str], pad: float = 1.08) -> Axis:
    """From the least to the greatest value and a little more; 1-2-5 ticks, fewer over many decades, more over few."""
    low, high = min(values) / pad, max(values) * pad
    if high / low < 1.3:
        low, high = low / 1.15, high * 1.15
    decades = math.log10(high / low)
    steps = (1.0,) if decades > 3.2 else (1.0, 3.0) if decades > 2 else (1.0, 2.0, 5.0) if decades > 0.7 else _FINE
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside = [mark for power in powers for step in steps if low <= (mark := step * 10.0**power) <= high]
    if len(inside) < 3:
        even = _step((high - low) / 5)
        inside = [round(i * even, 12) for i in range(math.ceil(low / even), math.floor(high / even) + 1)]
    return Axis(label, low, high, tuple(Tick(mark, form(mark)) for mark in inside), log=True)


def doubling_axis(label: str, values: Sequence[float], form: Callable[[float], str]) -> Axis:
    """Powers of two, the usual unit of context lengths."""
    low, high = min(values) / 1.12, max(values) * 1.12
    powers = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
    marks = [2.0**power for power in powers if low <= 2.0**power <= high]
    if len(marks) < 2:
        first, last = 2.0 ** math.floor(math.log2(low)), 2.0 ** math.ceil(math.log2(high))
        marks, low, high = [first, last], min(low, first), max(high, last)
    return Axis(label, low, high, tuple(Tick(mark, form(mark)) for mark in marks), log=True)


def category_axis(names: Sequence[str], emphasised: Sequence[str] = (), *, dense: bool = False) -> Axis:
    return Axis("", categories=tuple(names), emphasised=tuple(emphasised), dense=dense)


def _step(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * step for step in _STEPS if power * step >= raw * 0.999)
