"""What a calibration found, its scores included, as values and as JSON (``semantic_kv.calibration.v1``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def score(observed_ms: Floats, predicted_ms: Floats) -> Scores | None:
    """None if there are no requests."""
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


@dataclass(frozen=True, slots=True)
class RungResult:
    """One candidate model (a rung, from simple to complex). ``refused`` is why it was not fitted; it then has no score.

    ``choice_error`` is the cross-validated mean absolute log error on stretches of the fitted requests. The rung is
    chosen by it; the held-out requests do not influence the choice.
    """

    name: str
    model: LatencyModel | None
    refused: str | None = None
    converged: bool = True
    choice_error: float | None = None
    fitted: Scores | None = None
    held_out: Scores | None = None

    def as_record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "refused": self.refused,
            "converged": self.converged,
            "choice_error": self.choice_error,
            "model": None if self.model is None else self.model.as_record(),
            "fitted": None if self.fitted is None else self.fitted.as_record(),
            "held_out": None if self.held_out is None else self.held_out.as_record(),
        }


@dataclass(frozen=True, slots=True)
class Interval:
    """Percentiles of the refits on resampled requests."""

    low: float
    high: float
    resamples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The chosen rung and how it was chosen. ``engine`` is None if requests are modelled as alone on the server.

    ``held_out`` marks the requests that were held out of the fit, which are the latest ones.
    """

    trace: str
    rung: str
    model: LatencyModel
    engine: Engine | None
    rungs: tuple[RungResult, ...]
    intervals: Mapping[str, Interval]
    skipped: Mapping[str, int]
    notes: tuple[str, ...]
    observed_ms: Floats
    predicted_ms: Floats
    held_out: npt.NDArray[np.bool_]
    overlapping: npt.NDArray[np.bool_]

    @property
    def chosen(self) -> RungResult:
        return next(rung for rung in self.rungs if rung.name == self.rung)

    @property
    def held_out_mdape(self) -> float:
        scores = self.chosen.held_out
        assert scores is not None
        return scores.mdape

    def as_record(self) -> dict[str, Any]:
        return {
            "schema": CALIBRATION_SCHEMA,
            "trace": self.trace,
            "rung": self.rung,
            "model": self.model.as_record(),
            "engine": None
            if self.engine is None
            else {"pass_tokens": self.engine.pass_tokens, "slots": self.engine.slots},
            "intervals": {
                name: {"low": each.low, "high": each.high, "resamples": each.resamples}
                for name, each in self.intervals.items()
            },
            "rungs": [rung.as_record() for rung in self.rungs],
            "skipped": dict(self.skipped),
            "notes": list(self.notes),
            "requests": [
                {"observed_ms": float(seen), "predicted_ms": float(predicted), "held_out": bool(out)}
                for seen, predicted, out in zip(self.observed_ms, self.predicted_ms, self.held_out, strict=True)
            ],
        }
