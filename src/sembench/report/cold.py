"""What "cold" means on a page: a miss on the measured server, compared with a stock engine if the verdict did so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sembench.report.estimates import Estimate
from sembench.report.formats import ratio

COLD_IS_A_MISS: Final = (
    "Cold means a miss on this server, including the connector's own cost. It is not a stock engine."
)


def cold_in_words(verdict: Mapping[str, Any] | None) -> str:
    observed = (verdict or {}).get("observed") or {}
    value, n = observed.get("cold_arm_overhead_median"), observed.get("cold_arm_overhead_n")
    if not isinstance(value, int | float) or not isinstance(n, int):
        return COLD_IS_A_MISS
    low, high = observed.get("cold_arm_overhead_ci95") or (None, None)
    overhead = Estimate(n, value, low, high).shown(ratio)
    return f"Cold means a miss on this server; it took {overhead} the TTFT of a stock engine, n = {n:,}."
