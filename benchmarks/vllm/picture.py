"""Bars of median TTFT per size and case. Nothing is drawn without matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.vllm.estimates import Quartiles
from benchmarks.vllm.report import Cell

ARMS = (("cold", "cold_ms", "#7f7f7f"), ("ours", "ours_ms", "#1f77b4"), ("exact hit", "exact_ms", "#2ca02c"))


def draw(cells: Sequence[Cell], path: Path) -> bool:
    """Whether a picture was drawn. Whiskers are quartiles; a missing bar was not served."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    sizes = list(dict.fromkeys(cell.size for cell in cells))
    figure = Figure(figsize=(3.2 * len(sizes) + 1, 4.2), layout="constrained")
    for place, size in enumerate(sizes):
        axes = figure.add_subplot(1, len(sizes), place + 1)
        group = [cell for cell in cells if cell.size == size]
        for offset, (label, name, colour) in enumerate(ARMS):
            spreads = [_spread(cell, name) for cell in group]
            places = [i + (offset - 1) * 0.27 for i, spread in enumerate(spreads) if spread is not None]
            known = [spread for spread in spreads if spread is not None]
            whiskers = [[s.median - s.low for s in known], [s.high - s.median for s in known]]
            heights = [spread.median for spread in known]
            axes.bar(places, heights, 0.25, yerr=whiskers, color=colour, label=label, capsize=2)
        axes.set_xticks(range(len(group)), [cell.case for cell in group], rotation=30, ha="right")
        axes.set_title(f"{size} tokens")
        axes.set_yscale("log")
        if place == 0:
            axes.set_ylabel("time to first token, ms (log)")
            axes.legend()
    figure.savefig(path, dpi=120)
    return True


def _spread(cell: Cell, name: str) -> Quartiles | None:
    rows = cell.served if name == "ours_ms" else cell.clean
    return Quartiles.of([value for row in rows if (value := getattr(row, name)) is not None])
