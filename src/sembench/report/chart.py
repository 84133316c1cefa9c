"""A chart as values: axes and layers. One description is drawn twice, as SVG for the page and as PNG for slides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["cold", "reuse", "miss", "negative", "unknown", "accent", "muted", "bad"]
Mark = Literal["disc", "ring", "diamond"]


@dataclass(frozen=True, slots=True)
class DataTable:
    """Shown under every chart for those who cannot or will not read the picture."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Tick:
    value: float
    label: str


@dataclass(frozen=True, slots=True)
class Axis:
    """``categories`` turn a vertical axis into named rows, the first on top; then ``low`` and ``high`` are unused."""

    label: str
    low: float = 0.0
    high: float = 1.0
    ticks: tuple[Tick, ...] = ()
    log: bool = False
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Dots:
    name: str
    tone: Tone
    dots: tuple[Dot, ...]
    mark: Mark = "disc"


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    tone: Tone
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
    tone: Tone
    whiskers: tuple[Whisker, ...]
    horizontal: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """Horizontal, in row ``y``, from zero; ``text`` stands at its end."""

    y: int
    length: float
    text: str
    label: str


@dataclass(frozen=True, slots=True)
class Bars:
    name: str
    tone: Tone
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the whole chart: a limit, equality, a noise floor."""

    value: float
    label: str
    vertical: bool = False
    tone: Tone = "muted"


Layer = Dots | Curve | Whiskers | Bars | Rule


@dataclass(frozen=True, slots=True)
class Chart:
    """``message`` is what the picture says, in one sentence of figures."""

    key: str
    title: str
    message: str
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    table: DataTable
    note: str = ""


def named(chart: Chart) -> list[Dots | Curve | Whiskers | Bars]:
    """The layers that a legend names; one name alone needs none."""
    layers = [layer for layer in chart.layers if not isinstance(layer, Rule) and layer.name]
    return layers if len(layers) > 1 else []
