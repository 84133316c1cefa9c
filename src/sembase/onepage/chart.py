"""A chart as values: axes and layers. One description is drawn twice, as SVG for the page and as PNG for slides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mark = Literal["disc", "ring", "diamond"]


@dataclass(frozen=True, slots=True)
class DataTable:
    """Shown under every chart, for readers who cannot see the picture."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Tick:
    value: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """``categories`` turn a vertical axis into named rows, the first on top, the ``emphasised`` ones bold, ``dense``
    ones close together and with room for long names; then ``low`` and ``high`` are unused."""

    label: str
    low: float = 0.0
    high: float = 1.0
    ticks: tuple[Tick, ...] = ()
    log: bool = False
    categories: tuple[str, ...] = ()
    emphasised: tuple[str, ...] = ()
    dense: bool = False


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Dots:
    name: str
    tone: str
    dots: tuple[Dot, ...]
    mark: Mark = "disc"


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    tone: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Whisker:
    """A median (``x``, ``y``) and its interval along one axis; None where there is none."""

    x: float
    y: float
    low: float | None
    high: float | None
    label: str


@dataclass(frozen=True, slots=True)
class Whiskers:
    name: str
    tone: str
    whiskers: tuple[Whisker, ...]
    horizontal: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """In row ``y`` from ``start`` to ``end``; ``text`` follows the end, ``low`` and ``high`` are its interval."""

    y: float
    end: float
    text: str
    label: str
    start: float = 0.0
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """``thin`` bars leave room for a second series in the same row."""

    name: str
    tone: str
    bars: tuple[Bar, ...]
    thin: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the whole chart: a limit, equality, a bound."""

    value: float
    label: str
    vertical: bool = False
    tone: str = "muted"
    dashed: bool = False


Series = Dots | Curve | Whiskers | Bars
Layer = Series | Rule


@dataclass(frozen=True, slots=True)
class Chart:
    """``message`` states in one sentence, with figures, what the chart shows."""

    key: str
    title: str
    message: str
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    table: DataTable
    note: str = ""


def named(chart: Chart) -> list[Series]:
    """The layers that a legend names; one name alone needs none."""
    layers = [layer for layer in chart.layers if not isinstance(layer, Rule) and layer.name]
    return layers if len(layers) > 1 else []
