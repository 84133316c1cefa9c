"""What a calibration found, its scores included, as values and as JSON (``semantic_kv.calibration.v1``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from semantic_kv.calibrate.models import Fit
from sembase.latency import CALIBRATION_SCHEMA, Engine, Floats, LatencyModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """``r2`` is None if the observed times do not vary; below 0, the mean would have predicted better.

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


def score(observed_ms: Floats, predicted_ms: Floats) -> Scores:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The fitted model and its scores. ``held_out`` marks the latest requests, which were used only to test it."""

    trace: str
    fit: Fit
    fitted: Scores
    tested: Scores
    skipped: Mapping[str, int]
    notes: tuple[str, ...]
    observed_ms: Floats
    predicted_ms: Floats
    held_out: npt.NDArray[np.bool_]
    overlapping: npt.NDArray[np.bool_]

    @property
    def model(self) -> LatencyModel:
        return self.fit.model

    @property
    def engine(self) -> Engine | None:
        """None if requests are modelled as alone on the server."""
        return self.fit.engine

    @property
    def held_out_mdape(self) -> float:
        return self.tested.mdape

    def as_record(self) -> dict[str, Any]:
        return {
            "schema": CALIBRATION_SCHEMA,
            "trace": self.trace,
            "model": self.model.as_record(),
            "engine": None if self.engine is None else asdict(self.engine),
            "converged": self.fit.converged,
            "fitted": asdict(self.fitted),
            "held_out": asdict(self.tested),
            "skipped": dict(self.skipped),
            "notes": list(self.notes),
            "requests": [
                {"observed_ms": float(seen), "predicted_ms": float(predicted), "held_out": bool(out)}
                for seen, predicted, out in zip(self.observed_ms, self.predicted_ms, self.held_out, strict=True)
            ],
        }
