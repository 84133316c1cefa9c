"""Nearest-rank percentiles: a value that occurred, not one between two that did."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sembench.metrics.base import Figure


def percentile(values: Iterable[float], percent: float) -> Figure | None:
    ordered = sorted(values)
    if not ordered:
        return None
    return Figure(ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)], n=len(ordered))
