"""Charts -> PNGs for slides, by matplotlib from the same descriptions as the page's SVG. Always light: slides are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from sembench.files import replace_atomically
from sembench.report.chart import Axis, Bars, Chart, Curve, Dots, Layer, Mark, Rule, Tone, Whiskers, named
from sembench.report.funnel import FunnelRow
from sembench.report.funnel_png import drawn_funnel
from semblend.errors import MissingDependencyError
from semblend.registry import Registry

_FIGURES: Final[Registry[Any]] = Registry("figure library")
_FIGURES.register("matplotlib", "matplotlib.figure:Figure")
_TONES: Final[dict[Tone, str]] = {
    "cold": "#64748b",
    "reuse": "#0f7d8c",
    "miss": "#c2700a",
    "negative": "#8b4fb8",
    "unknown": "#7b8794",
    "accent": "#1f4fc4",
    "muted": "#657184",
    "bad": "#be2435",
}
_INK: Final = "#16202c"
_SOFT: Final = "#536070"
_MARKS: Final[dict[Mark, str]] = {"disc": "o", "ring": "o", "diamond": "D"}
_INCHES: Final = (9.6, 5.4)
_ROW_INCHES: Final = 0.38
_TITLE_INCHES: Final = 1.0
_LEGEND_INCHES: Final = 0.32
_DPI: Final = 200


def write_pngs(
    charts: Sequence[tuple[str, Chart]], directory: Path, funnels: Sequence[tuple[str, Sequence[FunnelRow]]] = ()
) -> list[Path]:
    """One file per funnel and chart, named after it."""
    try:
        figure_class: Callable[..., Any] = _FIGURES.get("matplotlib")
    except ModuleNotFoundError:
        raise MissingDependencyError("matplotlib", "benchmarks", "--png") from None
    pictures = [
        *((f"{prefix}funnel", drawn_funnel(rows, figure_class, _literal)) for prefix, rows in funnels),
        *((f"{prefix}{chart.key}", drawn(chart, figure_class)) for prefix, chart in charts),
    ]
    written = []
    for name, picture in pictures:
        path = directory / f"{name}.png"
        with replace_atomically(path) as stream:
            picture.savefig(stream, format="png", dpi=_DPI, facecolor="white")
        written.append(path)
    return written


def drawn(chart: Chart, figure_class: Callable[..., Any]) -> Any:
    rows = len(chart.y.categories)
    entries = named(chart)
    above = _TITLE_INCHES + (_LEGEND_INCHES if entries else 0.0)
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
    axes.tick_params(length=0, labelsize=11, colors=_SOFT, pad=7)
    if not any(isinstance(layer, Bars) for layer in chart.layers):
        axes.grid(color="#e9edf2", linewidth=0.8)
    axes.set_axisbelow(True)
    figure.text(0.02, 1 - 0.24 / height, _literal(chart.title), fontsize=17, weight="bold", color=_INK, va="top")
    figure.text(0.02, 1 - 0.62 / height, _literal(chart.message), fontsize=11, color=_SOFT, va="top", wrap=True)
    if entries:
        place = (0.012, 1 - (_TITLE_INCHES - 0.06) / height)
        style = {"frameon": False, "fontsize": 10, "labelcolor": _SOFT, "handletextpad": 0.3, "columnspacing": 1.4}
        figure.legend(loc="upper left", bbox_to_anchor=place, ncols=len(entries), borderaxespad=0, **style)
    return figure


def _draw(axes: Any, layer: Layer) -> None:
    if isinstance(layer, Rule):
        _rule(axes, layer)
        return
    colour, name = _TONES[layer.tone], _literal(layer.name) or "_nolegend_"
    if isinstance(layer, Dots):
        x, y = [dot.x for dot in layer.dots], [dot.y for dot in layer.dots]
        hollow = layer.mark == "ring"
        axes.scatter(
            x,
            y,
            s=34,
            marker=_MARKS[layer.mark],
            facecolors="none" if hollow else colour,
            edgecolors=colour if hollow else "white",
            linewidths=1.3 if hollow else 0.5,
            alpha=0.8,
            label=name,
            clip_on=False,
            zorder=3,
        )
    elif isinstance(layer, Curve):
        x, y = [point[0] for point in layer.points], [point[1] for point in layer.points]
        style, width = ("--", 1.0) if layer.dashed else ("-", 2.2)
        axes.plot(x, y, style, linewidth=width, color=colour, label=name)
    elif isinstance(layer, Whiskers):
        _whiskers(axes, layer, _INK if layer.tone == "accent" else colour, name)
    else:
        _bars(axes, layer, colour, name)


def _rule(axes: Any, rule: Rule) -> None:
    style = "--" if rule.tone == "bad" else "-"
    colour = _TONES[rule.tone]
    if rule.vertical:
        axes.axvline(rule.value, color=colour, linewidth=1.0, linestyle=style)
        place, at = (rule.value, 1.0), ("data", "axes fraction")
        axes.annotate(
            _literal(rule.label), place, xycoords=at, xytext=(0, 4), textcoords="offset points", **_note(colour)
        )
        return
    axes.axhline(rule.value, color=colour, linewidth=1.0, linestyle=style)
    place, at = (1.0, rule.value), ("axes fraction", "data")
    style_of = {**_note(colour), "ha": "right"}
    axes.annotate(_literal(rule.label), place, xycoords=at, xytext=(-4, 4), textcoords="offset points", **style_of)


def _note(colour: str) -> dict[str, Any]:
    return {"ha": "center", "fontsize": 10, "color": colour}


def _whiskers(axes: Any, layer: Whiskers, colour: str, name: str) -> None:
    x, y = [each.x for each in layer.whiskers], [each.y for each in layer.whiskers]
    middle = x if layer.horizontal else y
    ends = [
        [at - (each.low if each.low is not None else at) for at, each in zip(middle, layer.whiskers, strict=True)],
        [(each.high if each.high is not None else at) - at for at, each in zip(middle, layer.whiskers, strict=True)],
    ]
    errors = {"xerr" if layer.horizontal else "yerr": ends}
    axes.errorbar(
        x, y, **errors, fmt="o", color=colour, markersize=8, elinewidth=2.4, mec="white", label=name, zorder=5
    )


def _bars(axes: Any, layer: Bars, colour: str, name: str) -> None:
    places, lengths = [bar.y for bar in layer.bars], [bar.length for bar in layer.bars]
    drawn_bars = axes.barh(places, lengths, 0.5, color=colour, label=name)
    axes.bar_label(drawn_bars, [_literal(bar.text) for bar in layer.bars], padding=6, fontsize=10.5, color=_INK)
    axes.margins(x=0.18)


def _scale(axes: Any, axis: Axis, *, horizontal: bool) -> None:
    side = axes.xaxis if horizontal else axes.yaxis
    if axis.categories:
        side.set_ticks(range(len(axis.categories)), [_literal(name) for name in axis.categories])
        axes.set_ylim(len(axis.categories) - 0.5, -0.5)
        return
    (axes.set_xscale if horizontal else axes.set_yscale)("log" if axis.log else "linear")
    has_bars = bool(axes.containers) and horizontal and not axis.log
    (axes.set_xlim if horizontal else axes.set_ylim)(axis.low, axis.high * (1.2 if has_bars else 1.0))
    side.set_ticks([tick.value for tick in axis.ticks], [_literal(tick.label) for tick in axis.ticks])
    side.set_ticks([], minor=True)
    side.set_label_text(_literal(axis.label), fontsize=11, color=_SOFT)


def _literal(text: str) -> str:
    """A dollar sign starts mathematics in matplotlib, and names are anybody's; letters no font has are left to it."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text).replace("$", r"\$")
