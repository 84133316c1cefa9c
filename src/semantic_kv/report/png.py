"""Charts as PNG files, named after them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onepage.chart import Chart
from onepage.png import drawn, figure_class, png_bytes
from semantic_kv.experiment.files import write_bytes
from semantic_kv.report.tones import COLOURS

_DPI: Final = 150


def write_pngs(charts: Sequence[Chart], directory: Path) -> None:
    make = figure_class("simulator", "drawing plots")
    for chart in charts:
        write_bytes(directory / f"{chart.key}.png", png_bytes(drawn(chart, COLOURS, make), _DPI))
