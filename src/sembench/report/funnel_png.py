"""The funnel as a picture for slides: one column per stage, one bar per transform, as in the page's table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sembase.onepage.formats import NOT_MEASURED
from sembase.onepage.markup import Safe, tag
from sembase.onepage.png import Rasterise, picture_png
from sembench.report.formats import percent
from sembench.report.funnel import STAGES, FunnelRow

_MESSAGE: Final = "Fraction of blocks or tokens. Stages are measured independently; only the last one is called reuse."
_NAMES: Final = 200
_COLUMN: Final = 122
_BAR: Final = 106
_HEAD: Final = 24
_ROW: Final = 36


def funnel_png(rows: Sequence[FunnelRow], style: str, rasterise: Rasterise) -> bytes:
    width, height = _NAMES + _COLUMN * len(STAGES), _HEAD + _ROW * len(rows)
    return picture_png("Funnel per transform", _MESSAGE, _drawn(rows), width, height, style, rasterise)


def _drawn(rows: Sequence[FunnelRow]) -> Iterator[Safe]:
    """A figure that was not measured gets a label instead of a bar."""
    for place, row in enumerate(rows):
        yield tag("text", row.name, x=0, y=_HEAD + _ROW * place + 22, class_="name")
    for column, stage in enumerate(STAGES):
        x = _NAMES + _COLUMN * column
        yield tag("text", stage.title, x=x, y=12, class_="name strong")
        for place, row in enumerate(rows):
            found, y = row.stages[column], _HEAD + _ROW * place
            label = NOT_MEASURED if found is None else percent(found.figure.value)
            yield tag("text", label, x=x, y=y + 14, class_=None if found is None else "value")
            yield tag("rect", x=x, y=y + 20, width=_BAR, height=6, rx=3, class_="track")
            if found is not None:
                length = _BAR * min(1.0, max(0.0, found.figure.value))
                bar = tag("rect", x=x, y=y + 20, width=length, height=6, rx=3, class_="fill")
                yield tag("g", bar, class_=stage.key)
