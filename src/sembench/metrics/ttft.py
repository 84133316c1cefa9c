"""Time to first token of each arm: what users wait. Failed requests and pairs that were not clean are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from sembench.metrics.base import Figure, Metric, Needs
from sembench.metrics.percentile import percentile
from sembench.metrics.rows import RequestRow
from sembench.paired.clean import cold_arm, warm_arm
from semblend.contract import Evidence

_ARMS: Final = {"cold": cold_arm, "warm": warm_arm}


def _metric(arm: Literal["cold", "warm"], percent: int) -> Metric:
    def measure(rows: Sequence[RequestRow]) -> Figure | None:
        arms = [found for row in rows if (found := _ARMS[arm](row)) is not None]
        return percentile((found.ttft_ms for found in arms if found.ttft_ms is not None), percent)

    return Metric(
        name=f"{arm}_ttft_ms_p{percent}",
        unit="ms",
        formula=f"{percent}th percentile (nearest rank) of the {arm} arms' time to the first token-bearing chunk",
        needs=(Needs.LIVE,),
        evidence=Evidence.MEASURED_LIVE,
        better="lower" if arm == "warm" else "neither",
        measure=measure,
    )


COLD_P50: Final = _metric("cold", 50)
COLD_P95: Final = _metric("cold", 95)
COLD_P99: Final = _metric("cold", 99)
WARM_P50: Final = _metric("warm", 50)
WARM_P95: Final = _metric("warm", 95)
WARM_P99: Final = _metric("warm", 99)
