"""Charts -> PNG files by matplotlib, from the same descriptions as the page's SVG. Always light: slides are."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from semantic_kv.experiment.files import write_bytes
from semantic_kv.report.chart import Axis, Bars, Chart, Curve, Dots, Layer, Rule, Tone, named
from semblend.errors import MissingDependencyError
from semblend.registry import Registry

_FIGURES: Final[Registry[Any]] = Registry("figure library")
_FIGURES.register("matplotlib", "matplotlib.figure:Figure")
_TONES: Final[dict[Tone, str]] = {
    "baseline": "#64748b",
    "bound": "#be2435",
    "muted": "#657184",
    "c1": "#1f4fc4",
    "c2": "#0f7d8c",
    "c3": "#c2700a",
    "c4": "#8b4fb8",
    "c5": "#137a46",
    "c6": "#7f92b5",
    "c7": "#b8347c",
    "c8": "#6b5b45",
}
_INK: Final = "#16202c"
_SOFT: Final = "#536070"
_INCHES: Final = (9.6, 5.4)
_ROW_INCHES: Final = 0.34
_TITLE_INCHES: Final = 1.0
_LEGEND_ROW_INCHES: Final = 0.26
_LEGEND_COLUMNS: Final = 6
_DPI: Final = 150


def write_pngs(charts: Sequence[Chart], directory: Path) -> list[Path]:
    """One file per chart, named after it."""
    try:
        figure_class: Callable[..., Any] = _FIGURES.get("matplotlib")
    except ModuleNotFoundError:
        raise MissingDependencyError("matplotlib", "simulator", "drawing plots") from None
    written = []
    for chart in charts:
        stream = io.BytesIO()
        _drawn(chart, figure_class).savefig(stream, format="png", dpi=_DPI, facecolor="white")
        path = directory / f"{chart.key}.png"
        write_bytes(path, stream.getvalue())
        written.append(path)
    return written


def _drawn(chart: Chart, figure_class: Callable[..., Any]) -> Any:
    rows = len(chart.y.categories)
    entries = named(chart)
    legend_rows = -(-len(entries) // _LEGEND_COLUMNS)
    above = _TITLE_INCHES + _LEGEND_ROW_INCHES * legend_rows
    height = above + 1.0 + _ROW_INCHES * rows if rows else _INCHES[1]
    figure = figure_class(figsize=(_INCHES[0], height), layout="constrained")
    figure.get_layout_engine().set(rect=(0.015, 0.02, 0.965, 1 - above / height - 0.02))
    axes = figure.add_subplot()
    for layer in chart.layers:
        _draw(axes, layer)
    _scale(axes, chart.x, horizontal=True)
    _scale(axes, chart.y, horizontal=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#dde2e9")
    axes.tick_params(length=0, labelsize=10.5, colors=_SOFT, pad=6)
    axes.grid(color="#e9edf2", linewidth=0.8, axis="x" if rows else "both")
    axes.set_axisbelow(True)
    figure.text(0.02, 1 - 0.24 / height, _literal(chart.title), fontsize=17, weight="bold", color=_INK, va="top")
    figure.text(0.02, 1 - 0.62 / height, _literal(chart.message), fontsize=10.5, color=_SOFT, va="top", wrap=True)
    if entries:
        place = (0.012, 1 - (_TITLE_INCHES - 0.06) / height)
        style = {"frameon": False, "fontsize": 10, "labelcolor": _SOFT, "handletextpad": 0.4, "columnspacing": 1.4}
        columns = min(len(entries), _LEGEND_COLUMNS)
        figure.legend(loc="upper left", bbox_to_anchor=place, ncols=columns, borderaxespad=0, **style)
    return figure


def _draw(axes: Any, layer: Layer) -> None:
    colour = _TONES[layer.tone]
    if isinstance(layer, Rule):
        _rule(axes, layer, colour)
        return
    name = _literal(layer.name) or "_nolegend_"
    if isinstance(layer, Bars):
        _bars(axes, layer, colour, name)
        return
    x, y = [point[0] for point in layer.points], [point[1] for point in layer.points]
    if isinstance(layer, Dots):
        face = "none" if layer.hollow else colour
        axes.scatter(x, y, s=36, facecolors=face, edgecolors=colour, linewidths=1.4, label=name, zorder=4)
    elif isinstance(layer, Curve):
        style, width = ("--", 1.3) if layer.dashed else ("-", 2.0)
        axes.plot(x, y, style, linewidth=width, color=colour, label=name)


def _rule(axes: Any, rule: Rule, colour: str) -> None:
    style = {"ha": "center" if rule.vertical else "right", "fontsize": 9.5, "color": colour}
    if rule.vertical:
        axes.axvline(rule.value, color=colour, linewidth=1.2, linestyle="--")
        place, at, shift = (rule.value, 1.0), ("data", "axes fraction"), (0, 4)
    else:
        axes.axhline(rule.value, color=colour, linewidth=1.2, linestyle="--")
        place, at, shift = (1.0, rule.value), ("axes fraction", "data"), (-4, 4)
    axes.annotate(_literal(rule.label), place, xycoords=at, xytext=shift, textcoords="offset points", **style)


def _bars(axes: Any, layer: Bars, colour: str, name: str) -> None:
    places = [bar.y for bar in layer.bars]
    starts, lengths = [bar.start for bar in layer.bars], [bar.end - bar.start for bar in layer.bars]
    axes.barh(places, lengths, 0.34 if layer.thin else 0.6, left=starts, color=colour, label=name)
    for bar in layer.bars:
        reach = max(bar.start, bar.end)
        if bar.low is not None and bar.high is not None:
            axes.plot([bar.low, bar.high], [bar.y, bar.y], color=_INK, linewidth=1.1, solid_capstyle="butt")
            reach = max(reach, bar.high)
        if bar.text:
            style = {"va": "center", "fontsize": 8.5 if layer.thin else 9.5, "color": _INK}
            offset = {"xytext": (5, 0), "textcoords": "offset points"}
            axes.annotate(_literal(bar.text), (reach, bar.y), **offset, **style)


def _scale(axes: Any, axis: Axis, *, horizontal: bool) -> None:
    side = axes.xaxis if horizontal else axes.yaxis
    if axis.categories:
        side.set_ticks(range(len(axis.categories)), [_literal(name) for name in axis.categories])
        for name, label in zip(axis.categories, side.get_ticklabels(), strict=True):
            label.set_fontweight("bold" if name in axis.emphasised else "normal")
        axes.set_ylim(len(axis.categories) - 0.5, -0.5)
        return
    (axes.set_xscale if horizontal else axes.set_yscale)("log" if axis.log else "linear")
    has_bars = bool(axes.containers) and horizontal
    room = 0.14 * (axis.high - axis.low) if has_bars else 0.0
    (axes.set_xlim if horizontal else axes.set_ylim)(axis.low, axis.high + room)
    side.set_ticks([tick.value for tick in axis.ticks], [_literal(tick.label) for tick in axis.ticks])
    side.set_ticks([], minor=True)
    side.set_label_text(_literal(axis.label), fontsize=10.5, color=_SOFT)


def _literal(text: str) -> str:
    """A dollar sign starts mathematics in matplotlib, and names are anybody's; letters no font has are left to it."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text).replace("$", r"\$")
