"""A calibration -> the scatter of observed against modelled TTFT, as PNG bytes. Needs the extra ``simulator``."""

from __future__ import annotations

import numpy as np

from onepage.png import GRID, INK, SOFT, figure_class, png_bytes
from onepage.ticks import log_axis
from semantic_kv.calibrate.result import Calibration

_HELD_OUT, _FITTED = "#0f7d8c", "#b6bfca"


def scatter_png(calibration: Calibration) -> bytes:
    figure = figure_class("simulator", "the scatter plot")(figsize=(7.2, 7.6), layout="constrained")
    axes = figure.add_subplot()
    low, high = _limits(calibration)
    line = np.array([low, high])
    axes.fill_between(line, line * 0.8, line * 1.2, color="#eef4f5", label="within 20 % of observed", zorder=0)
    axes.plot(line, line, color=SOFT, linewidth=1.0, zorder=1)
    for held_out, colour, word in ((False, _FITTED, "fitted"), (True, _HELD_OUT, "held out")):
        for met, mark in ((False, "o"), (True, "^")):
            chosen = (calibration.held_out == held_out) & (calibration.overlapping == met)
            label = f"{word}, {'met a busy server' if met else 'alone'} ({int(chosen.sum())})"
            shown = (calibration.observed_ms[chosen], calibration.predicted_ms[chosen])
            axes.scatter(
                *shown, s=30, marker=mark, color=colour, edgecolors="white", linewidths=0.4, label=label, zorder=2
            )
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.set_xlabel("observed TTFT, ms (log scale)", color=SOFT)
    axes.set_ylabel("modelled TTFT, ms (log scale)", color=SOFT)
    ticks = log_axis("", [low, high], "{:,.4g}".format, pad=1.0).ticks
    for side in (axes.xaxis, axes.yaxis):
        side.set_ticks([tick.value for tick in ticks], [tick.label for tick in ticks])
        side.set_ticks([], minor=True)  # matplotlib would label them too, one over the other
    axes.grid(color=GRID, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(_title(calibration), loc="left", color=INK, fontsize=12)
    axes.legend(frameon=False, fontsize=9, labelcolor=SOFT, loc="upper left")
    return png_bytes(figure, 150)


def _limits(calibration: Calibration) -> tuple[float, float]:
    values = np.concatenate([calibration.observed_ms, np.maximum(calibration.predicted_ms, 0.1)])
    return float(values.min()) * 0.8, float(values.max()) * 1.25


def _title(calibration: Calibration) -> str:
    scores = calibration.chosen.held_out
    assert scores is not None
    return (
        f"Modelled against observed TTFT, model '{calibration.rung}'\n"
        f"held out: median absolute error {scores.mdape:.1%} ({scores.requests} requests)"
    )
