"""Observations in, a calibration out: fitted on the earlier requests and judged on the later ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from semantic_kv.calibrate.models import Fit, fit_alone, fit_queue, predict_ttft_ms
from semantic_kv.calibrate.observations import Observations
from semantic_kv.calibrate.result import Calibration, score
from sembase.errors import ConfigurationError, ContractError
from sembase.latency import Engine

MIN_FITTED: Final = 20
MIN_HELD_OUT: Final = 8
_MIN_SPREAD: Final = 0.5
_MIN_DISTINCT: Final = 5
_MIN_OVERLAPPING: Final = 8
_MIN_IDLE: Final = 10
_SIMPLER_TOLERANCE: Final = 1.05
NO_EVIDENCE: Final = (
    "the times of this trace come from a mock or are invented: the fit says nothing about a real server"
)
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FitOptions:
    held_out_share: float = 0.3
    engine: Engine = field(default_factory=Engine)

    def __post_init__(self) -> None:
        if not 0.1 <= self.held_out_share <= 0.5:
            raise ConfigurationError(f"invalid held-out share {self.held_out_share} (must be between 0.1 and 0.5)")


def calibrate(seen: Observations, options: FitOptions | None = None) -> Calibration:
    """Raises ``ContractError`` if the trace does not support a fit; never falls back to default coefficients."""
    chosen = options or FitOptions()
    held_out = _latest(len(seen), chosen.held_out_share)
    _require_enough(seen.rows(~held_out), seen.rows(held_out))
    alone = fit_alone(seen, (~held_out).astype(np.float64))
    if alone is None:
        raise ContractError(
            "not calibrated: the price of a token cannot be separated from the fixed part. Collect prompts of "
            "different lengths"
        )
    why_no_queue = _why_no_queue(seen.rows(~held_out))
    fit = alone if why_no_queue else _better(seen, held_out, alone, chosen.engine)
    predicted = predict_ttft_ms(seen, fit.model, fit.engine)
    return Calibration(
        trace=seen.name,
        fit=fit,
        fitted=score(seen.ttft_ms[~held_out], predicted[~held_out]),
        tested=score(seen.ttft_ms[held_out], predicted[held_out]),
        skipped=seen.skipped,
        notes=_notes(seen, fit, why_no_queue),
        observed_ms=seen.ttft_ms,
        predicted_ms=predicted,
        held_out=held_out,
        overlapping=seen.overlapping(),
    )


def _require_enough(fitted: Observations, held_out: Observations) -> None:
    """Raise if the trace has too few requests, or prompts of too similar lengths, for a fit."""
    skipped = "; ".join(f"{count} skipped: {reason}" for reason, count in fitted.skipped.items())
    note = f" ({skipped})" if skipped else ""
    if len(fitted) < MIN_FITTED or len(held_out) < MIN_HELD_OUT:
        raise ContractError(
            f"not calibrated: {len(fitted)} usable requests to fit and {len(held_out)} to hold out; the minimum is "
            f"{MIN_FITTED} and {MIN_HELD_OUT}{note}. Collect more requests"
        )
    tokens = fitted.uncached_tokens
    low, middle, high = (float(value) for value in np.quantile(tokens, [0.05, 0.5, 0.95]))
    if high - low < _MIN_SPREAD * max(middle, 1.0) or np.unique(tokens).size < _MIN_DISTINCT:
        raise ContractError(
            f"not calibrated: 90 % of the requests computed {low:.0f} to {high:.0f} uncached tokens; too similar to "
            "separate a price per token from a fixed price. Collect prompts of different lengths"
        )


def _why_no_queue(fitted: Observations) -> str:
    """Why a queue cannot be fitted to these observations; empty if it can."""
    overlapping = int(fitted.overlapping().sum())
    if overlapping < _MIN_OVERLAPPING:
        return (
            f"{overlapping} of {len(fitted)} requests arrived at a busy server; fitting a queue needs at least "
            f"{_MIN_OVERLAPPING}"
        )
    if not np.isfinite(fitted.total_ms).any():
        return "no total latencies, so the price of a pass cannot be separated from the fixed part"
    return ""


def _better(seen: Observations, held_out: Mask, alone: Fit, engine: Engine) -> Fit:
    """The queue, if it explains the fitted requests better. The held-out ones are in the queue and choose nothing."""
    weights = (~held_out).astype(np.float64)
    idle = weights * ~seen.overlapping()
    start = (fit_alone(seen, idle) if int(idle.sum()) >= _MIN_IDLE else None) or alone
    queue = fit_queue(seen, weights, engine, start.model)
    errors = []
    for fit in (alone, queue):
        predicted = np.maximum(predict_ttft_ms(seen, fit.model, fit.engine), 1e-3)
        errors.append(float(np.abs(np.log(predicted / seen.ttft_ms))[~held_out].mean()))
    return alone if errors[0] <= _SIMPLER_TOLERANCE * errors[1] else queue


def _latest(count: int, fraction: float) -> Mask:
    """The latest requests: a model is used on requests that come after it was fitted."""
    chosen = np.zeros(count, dtype=np.bool_)
    chosen[count - round(count * fraction) :] = True
    return chosen


def _notes(seen: Observations, fit: Fit, why_no_queue: str) -> tuple[str, ...]:
    notes = [NO_EVIDENCE] if seen.invented else []
    if why_no_queue:
        notes.append(f"no queue: {why_no_queue}")
    if not fit.converged:
        notes.append("the fit and the simulated queue did not converge; the best coefficients found are used")
    zero = [name for name in fit.terms if getattr(fit.model, name) == 0.0]
    if zero:
        notes.append(f"at their lower bound of 0: {', '.join(zero)}")
    return tuple(notes)
