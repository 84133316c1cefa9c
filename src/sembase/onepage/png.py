"""Charts -> PNGs for slides, by matplotlib from the same descriptions as the page's SVG. Always in light colours."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from sembase.errors import MissingDependencyError
from sembase.onepage.chart import Axis, Bars, Chart, Curve, Dots, Layer, Mark, Rule, Whiskers, named
from sembase.registry import load_target

FigureClass = Callable[..., Any]
INK: Final = "#16202c"
SOFT: Final = "#536070"
GRID: Final = "#e9edf2"
_OWN_TONES: Final = {"muted": "#657184", "ink": INK}
_MARKS: Final[dict[Mark, str]] = {"disc": "o", "ring": "o", "diamond": "D"}
_INCHES: Final = (9.6, 5.4)
_TITLE_INCHES: Final = 1.0
_LEGEND_COLUMNS: Final = 6
_ENTRY_INCHES: Final = 0.55  # the mark and the space to the next name


def figure_class(extra: str, purpose: str) -> FigureClass:
    """matplotlib's figure class, or an error that names the extra to install."""
    try:
        found: FigureClass = load_target("matplotlib.figure:Figure")
    except ModuleNotFoundError:
        raise MissingDependencyError("matplotlib", extra, purpose) from None
    return found


def png_bytes(figure: Any, dpi: int) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=dpi, facecolor="white")
    return stream.getvalue()


def drawn(chart: Chart, colours: Mapping[str, str], make: FigureClass) -> Any:
    """The chart as a matplotlib figure. ``colours`` maps tones to colours."""
    rows, entries = len(chart.y.categories), named(chart)
    columns = legend_columns([each.name for each in entries])
    legend_rows = -(-len(entries) // columns)
    above = _TITLE_INCHES + (0.06 + 0.26 * legend_rows if entries else 0.0)
    height = above + 1.0 + (0.34 if chart.y.dense else 0.38) * rows if rows else _INCHES[1]
    figure = make(figsize=(_INCHES[0], height), layout="constrained")
    figure.get_layout_engine().set(rect=(0.015, 0.02, 0.965, 1 - above / height - 0.02))
    axes = figure.add_subplot()
    for layer in chart.layers:
        _draw(axes, layer, {**_OWN_TONES, **colours}[layer.tone])
    _scale(axes, chart.x, horizontal=True)
    _scale(axes, chart.y, horizontal=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#dde2e9")
    axes.tick_params(length=0, labelsize=11, colors=SOFT, pad=7)
    axes.grid(color=GRID, linewidth=0.8, axis="x" if any(isinstance(layer, Bars) for layer in chart.layers) else "both")
    axes.set_axisbelow(True)
    figure.text(0.02, 1 - 0.24 / height, literal(chart.title), fontsize=17, weight="bold", color=INK, va="top")
    figure.text(0.02, 1 - 0.62 / height, literal(chart.message), fontsize=11, color=SOFT, va="top", wrap=True)
    if entries:
        place = (0.012, 1 - (_TITLE_INCHES - 0.06) / height)
        style = {"frameon": False, "fontsize": 10, "labelcolor": SOFT, "handletextpad": 0.3, "columnspacing": 1.4}
        figure.legend(loc="upper left", bbox_to_anchor=place, ncols=columns, borderaxespad=0, **style)
    return figure


def legend_columns(names: Sequence[str]) -> int:
    """As many columns as fit side by side; matplotlib fills them one after the other and clips what runs over."""
    for columns in range(min(len(names), _LEGEND_COLUMNS), 1, -1):
        rows, longer = divmod(len(names), columns)  # the first columns have a row more
        ends = [at * rows + min(at, longer) for at in range(columns + 1)]
        widest = [max(map(_name_inches, names[start:end])) for start, end in pairwise(ends)]
        if sum(widest) + _ENTRY_INCHES * columns <= _INCHES[0] - 0.3:
            return columns
    return 1


def _name_inches(name: str) -> float:
    """Width of the text in ten-point letters, rounded up generously."""
    return sum(0.14 if letter in "mwMW@%" else 0.09 for letter in name)


def _draw(axes: Any, layer: Layer, colour: str) -> None:
    if isinstance(layer, Rule):
        _rule(axes, layer, colour)
        return
    name = literal(layer.name) or "_nolegend_"
    if isinstance(layer, Dots):
        hollow = layer.mark == "ring"
        axes.scatter(
            [dot.x for dot in layer.dots],
            [dot.y for dot in layer.dots],
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
        style, width = ("--", 1.2) if layer.dashed else ("-", 2.2)
        axes.plot(x, y, style, linewidth=width, color=colour, label=name)
    elif isinstance(layer, Whiskers):
        _whiskers(axes, layer, colour, name)
    else:
        _bars(axes, layer, colour, name)


def _rule(axes: Any, rule: Rule, colour: str) -> None:
    line = {"color": colour, "linewidth": 1.0, "linestyle": "--" if rule.dashed else "-"}
    if rule.vertical:
        axes.axvline(rule.value, **line)
        place, at, shift = (rule.value, 1.0), ("data", "axes fraction"), (0, 4)
    else:
        axes.axhline(rule.value, **line)
        place, at, shift = (1.0, rule.value), ("axes fraction", "data"), (-4, 4)
    style = {"ha": "center" if rule.vertical else "right", "fontsize": 10, "color": colour}
    axes.annotate(literal(rule.label), place, xycoords=at, xytext=shift, textcoords="offset points", **style)


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
    places, starts = [bar.y for bar in layer.bars], [bar.start for bar in layer.bars]
    lengths = [bar.end - bar.start for bar in layer.bars]
    axes.barh(places, lengths, 0.34 if layer.thin else 0.55, left=starts, color=colour, label=name)
    for bar in layer.bars:
        reach = max(bar.start, bar.end)
        if bar.low is not None and bar.high is not None:
            axes.plot([bar.low, bar.high], [bar.y, bar.y], color=INK, linewidth=1.1, solid_capstyle="butt")
            reach = max(reach, bar.high)
        style = {"va": "center", "fontsize": 8.5 if layer.thin else 10, "color": INK}
        axes.annotate(literal(bar.text), (reach, bar.y), xytext=(6, 0), textcoords="offset points", **style)


def _scale(axes: Any, axis: Axis, *, horizontal: bool) -> None:
    side = axes.xaxis if horizontal else axes.yaxis
    if axis.categories:
        side.set_ticks(range(len(axis.categories)), [literal(name) for name in axis.categories])
        for name, label in zip(axis.categories, side.get_ticklabels(), strict=True):
            label.set_fontweight("bold" if name in axis.emphasised else "normal")
        axes.set_ylim(len(axis.categories) - 0.5, -0.5)
        return
    (axes.set_xscale if horizontal else axes.set_yscale)("log" if axis.log else "linear")
    room = 0.2 * (axis.high - axis.low) if axes.containers and horizontal and not axis.log else 0.0
    (axes.set_xlim if horizontal else axes.set_ylim)(axis.low, axis.high + room)
    side.set_ticks([tick.value for tick in axis.ticks], [literal(tick.label) for tick in axis.ticks])
    side.set_ticks([], minor=True)
    side.set_label_text(literal(axis.label), fontsize=11, color=SOFT)


def literal(text: str) -> str:
    """Escapes dollar signs, which start mathematics in matplotlib: names come from users."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text).replace("$", r"\$")
