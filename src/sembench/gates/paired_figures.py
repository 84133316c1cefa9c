"""Speedups of a ``paired`` block: the median with its interval and number of pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sembench.gates.verdict import Measured, Verdict, number

BLENDED: Final = "blended_ttft_speedup_median"
NEGATIVE: Final = "negative_control_ttft_speedup_median"
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


def decide_ratio(
    verdict: Verdict,
    gate: str,
    metric: str,
    found: Measured,
    end: Callable[[tuple[float, float]], float],
    holds: Callable[[float], bool],
    wanted: str,
) -> None:
    """Judges the median or, with ``judge_interval``, the unfavourable end of its interval."""
    if not verdict.request.judge_interval:
        verdict.decide(gate, metric, found, holds, wanted)
    elif found.ci95 is not None:
        verdict.decide(gate, metric, found, holds, wanted, judged=end(found.ci95))
    else:
        why = f"has no 95 % interval, which --judge-interval needs (n = {found.n or 0}; at least 6 pairs are required)"
        verdict.decide(gate, metric, Measured(None, n=found.n), holds, wanted, why_missing=why)
