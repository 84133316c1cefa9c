"""The page's charts and funnels as files for slides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sembase.files import replace_atomically
from sembase.onepage.chart import Chart
from sembase.onepage.png import drawn, figure_class, png_bytes
from sembench.report.funnel import FunnelRow
from sembench.report.funnel_png import drawn_funnel
from sembench.report.tones import COLOURS

_DPI: Final = 200


def write_pngs(
    charts: Sequence[tuple[str, Chart]], directory: Path, funnels: Sequence[tuple[str, Sequence[FunnelRow]]] = ()
) -> list[Path]:
    """One file per funnel and chart, named after it."""
    make = figure_class("benchmarks", "--png")
    pictures = [
        *((f"{prefix}funnel", drawn_funnel(rows, make)) for prefix, rows in funnels),
        *((f"{prefix}{chart.key}", drawn(chart, COLOURS, make)) for prefix, chart in charts),
    ]
    written = []
    for name, picture in pictures:
        path = directory / f"{name}.png"
        with replace_atomically(path) as stream:
            stream.write(png_bytes(picture, _DPI))
        written.append(path)
    return written
