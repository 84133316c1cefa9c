"""The page's charts and funnels as files for slides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sembase.files import replace_atomically
from sembase.onepage.chart import Chart
from sembase.onepage.page import style_of
from sembase.onepage.png import chart_png, rasteriser
from sembench.report.funnel import FunnelRow
from sembench.report.funnel_png import funnel_png


def write_pngs(
    charts: Sequence[tuple[str, Chart]], directory: Path, funnels: Sequence[tuple[str, Sequence[FunnelRow]]] = ()
) -> list[Path]:
    """One file per funnel and chart, named after it."""
    rasterise, style = rasteriser("benchmarks", "--png"), style_of("sembench.report")
    pictures = [
        *((f"{prefix}funnel", funnel_png(rows, style, rasterise)) for prefix, rows in funnels),
        *((f"{prefix}{chart.key}", chart_png(chart, style, rasterise)) for prefix, chart in charts),
    ]
    written = []
    for name, picture in pictures:
        path = directory / f"{name}.png"
        with replace_atomically(path) as stream:
            stream.write(picture)
        written.append(path)
    return written
