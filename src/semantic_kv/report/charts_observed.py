"""Observed against modelled TTFT, one point per request: how accurate the latency model is on this trace."""

from __future__ import annotations

from typing import Final

import numpy as np

from semantic_kv.experiment.observed import INVENTED, ObservedComparison
from semantic_kv.report.formats import milliseconds, percent
from sembase.onepage.chart import Chart, Curve, DataTable, Dot, Dots
from sembase.onepage.formats import tick_ms
from sembase.onepage.ticks import linear_axis, log_axis

_MAX_DOTS: Final = 2_000


def observed_chart(comparison: ObservedComparison | None) -> Chart:
    """The file name is fixed, so a trace without observed TTFT gets a chart that says so."""
    if comparison is None:
        return Chart(
            "observed_vs_simulated_ttft",
            "Observed against modelled TTFT",
            "The trace has no observed TTFT to compare the model with.",
            linear_axis("observed TTFT", 0.0, 1.0, tick_ms),
            linear_axis("modelled TTFT", 0.0, 1.0, tick_ms),
            (),
            DataTable(("request",), ()),
        )
    observed, modelled = np.maximum(comparison.observed_ms, 0.1), np.maximum(comparison.modelled_ms, 0.1)
    kept = np.unique(np.linspace(0, observed.size - 1, min(observed.size, _MAX_DOTS)).astype(np.int64))
    ends = [float(min(observed.min(), modelled.min())), float(max(observed.max(), modelled.max()))]
    dots = tuple(Dot(float(observed[i]), float(modelled[i])) for i in kept)
    error = comparison.median_absolute_percentage_error
    warning = f"{INVENTED} " if comparison.is_invented else ""
    quantiles = tuple(
        (f"p{p}", milliseconds(float(np.percentile(observed, p))), milliseconds(float(np.percentile(modelled, p))))
        for p in (10, 50, 90, 99)
    )
    return Chart(
        "observed_vs_simulated_ttft",
        "Observed against modelled TTFT",
        f"{warning}{observed.size:,} requests under {comparison.policy}; median absolute error {percent(error)}.",
        log_axis("observed TTFT", ends, tick_ms),
        log_axis("modelled TTFT", ends, tick_ms),
        (
            Curve("equal", "bound", ((ends[0], ends[0]), (ends[1], ends[1])), dashed=True),
            Dots("request", "c1", dots, "ring"),
        ),
        DataTable(("percentile", "observed", "modelled"), quantiles),
    )
