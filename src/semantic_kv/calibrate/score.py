"""Predicted beside observed -> how far off: median absolute percentage error, r2, residuals."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sembase.latency import Floats


@dataclass(frozen=True, slots=True)
class Scores:
    """``r2`` is None where the observed times do not vary; below 0 the mean would have been the better guess.

    Residuals are observed minus predicted.
    """

    requests: int
    mdape: float
    p90_ape: float
    within_20_percent: int
    r2: float | None
    residual_ms_p10: float
    residual_ms_p50: float
    residual_ms_p90: float
    mean_absolute_error_ms: float

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def score(observed_ms: Floats, predicted_ms: Floats) -> Scores | None:
    """None where there is nothing to score."""
    if observed_ms.size == 0:
        return None
    residual = observed_ms - predicted_ms
    off = np.abs(residual) / observed_ms
    spread = float(((observed_ms - observed_ms.mean()) ** 2).sum())
    low, middle, high = (float(value) for value in np.quantile(residual, [0.1, 0.5, 0.9]))
    return Scores(
        requests=int(observed_ms.size),
        mdape=float(np.median(off)),
        p90_ape=float(np.quantile(off, 0.9)),
        within_20_percent=int((off <= 0.2).sum()),
        r2=1.0 - float((residual**2).sum()) / spread if spread > 0.0 else None,
        residual_ms_p10=low,
        residual_ms_p50=middle,
        residual_ms_p90=high,
        mean_absolute_error_ms=float(np.abs(residual).mean()),
    )
