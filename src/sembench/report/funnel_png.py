"""The funnel as a picture for slides: one panel per stage, one bar per transform, as in the page's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sembase.onepage.formats import NOT_MEASURED
from sembase.onepage.png import GRID, INK, SOFT, FigureClass, literal
from sembench.report.formats import percent
from sembench.report.funnel import STAGES, FunnelRow

_COLOURS: Final = ("#64748b", "#9fb4e6", "#6585d6", "#1f4fc4", "#57a4ae", "#0f7d8c")
_WIDTH_INCHES: Final = 12.8
_ROW_INCHES: Final = 0.36


def drawn_funnel(rows: Sequence[FunnelRow], make: FigureClass) -> Any:
    """A figure that was not measured gets a label instead of a bar."""
    height = 1.7 + _ROW_INCHES * len(rows)
    figure = make(figsize=(_WIDTH_INCHES, height), layout="constrained")
    figure.get_layout_engine().set(rect=(0.012, 0.02, 0.97, 1 - 1.0 / height - 0.02), wspace=0.02)
    panels = figure.subplots(1, len(STAGES), sharey=True, squeeze=False)[0]
    for place, (axes, stage, colour) in enumerate(zip(panels, STAGES, _COLOURS, strict=True)):
        axes.set_title(stage.title, loc="left", fontsize=12, weight="bold", color=INK)
        axes.barh(range(len(rows)), [1.0] * len(rows), 0.34, color=GRID)
        for y, row in enumerate(rows):
            found = row.stages[place]
            if found is not None:
                axes.barh(y, min(1.0, max(0.0, found.figure.value)), 0.34, color=colour)
            label = NOT_MEASURED if found is None else percent(found.figure.value)
            style = {"style": "italic", "color": SOFT} if found is None else {"color": INK}
            axes.text(0.0, y - 0.27, label, fontsize=9.5, va="bottom", **style)
        axes.set_xlim(0, 1)
        axes.set_ylim(len(rows) - 0.5, -0.75)
        axes.set_xticks([])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=11, colors=SOFT)
    panels[0].set_yticks(range(len(rows)), [literal(row.name) for row in rows])
    figure.text(0.016, 1 - 0.24 / height, "Funnel per transform", fontsize=17, weight="bold", color=INK, va="top")
    message = "Fraction of blocks or tokens. Stages are measured independently; only the last one is called reuse."
    figure.text(0.016, 1 - 0.62 / height, message, fontsize=11, color=SOFT, va="top")
    return figure
