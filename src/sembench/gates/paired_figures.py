"""Speedups of a ``paired`` block: the median with its interval and number of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sembench.gates.verdict import Measured, number

BLENDED: Final = "blended_ttft_speedup_median"
NEGATIVE: Final = "negative_control_ttft_speedup_median"
DEVIATION: Final = "max_negative_control_speedup_deviation"
MISS: Final = "miss_ttft_speedup_median"


def speedup_in(paired: Mapping[str, Any], metric: str) -> Measured:
    """``metric`` is the name of a median, ``X_median``; its interval is ``X_ci95`` and its pairs are ``X_n``."""
    stem = metric.removesuffix("_median")
    return Measured(number(paired.get(metric)), n=count_in(paired, f"{stem}_n"), ci95=_interval(paired, f"{stem}_ci95"))


def count_in(paired: Mapping[str, Any], name: str) -> int | None:
    value = number(paired.get(name))
    return None if value is None else int(value)


def _interval(paired: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    value = paired.get(name)
    if not isinstance(value, list) or len(value) != 2:
        return None
    low, high = (number(end) for end in value)
    return None if low is None or high is None else (low, high)
