"""Observations in, a calibration out: candidate models fitted on the earlier requests and judged on the later ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from semantic_kv.calibrate.observations import Observations
from semantic_kv.calibrate.result import Calibration, Interval, RungResult, score
from semantic_kv.calibrate.rungs import RUNGS, Rung, alone_matrix, fit_rung, predict_ttft_ms
from semantic_kv.calibrate.solve import unexplained_fraction
from sembase.errors import ConfigurationError, ContractError
from sembase.latency import Engine, Floats, LatencyModel

MIN_FITTED: Final = 20
MIN_HELD_OUT: Final = 8
_MIN_SPREAD: Final = 0.5
_MIN_DISTINCT: Final = 5
_MIN_UNEXPLAINED: Final = 1e-3
_MIN_OVERLAPPING: Final = 8


def require_enough(fitted: Observations, held_out: Observations) -> None:
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


def refusal(rung: Rung, fitted: Observations) -> str | None:
    """Why this rung cannot be fitted to these observations; None if it can."""
    if rung.queueing:
        overlapping = int(fitted.overlapping().sum())
        if overlapping < _MIN_OVERLAPPING:
            return (
                f"{overlapping} of {len(fitted)} requests arrived at a busy server; fitting a queue needs at least "
                f"{_MIN_OVERLAPPING}"
            )
        if not np.isfinite(fitted.total_ms).any():
            return "no total latencies, so the price of a pass cannot be separated from the fixed part"
        return None
    relative = alone_matrix(rung, fitted) / fitted.ttft_ms[:, None]
    for column, name in enumerate(rung.coefficients):
        if unexplained_fraction(relative, column) < _MIN_UNEXPLAINED:
            return f"{name} cannot be separated from the other terms on these prompts"
    return None


_SIMPLER_TOLERANCE: Final = 1.05
_CONFIDENCE: Final = (0.025, 0.975)
NO_EVIDENCE: Final = (
    "the times of this trace come from a mock or are invented: the fit says nothing about a real server"
)
_MAX_RESAMPLES: Final = 5_000
_STRETCHES: Final = 4
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FitOptions:
    """``rung`` None selects the model by cross-validation. ``resamples`` 0 omits the intervals. ``run_length``:
    requests that are resampled together, because neighbours in time share disturbances."""

    rung: str | None = None
    held_out_share: float = 0.3
    resamples: int = 200
    run_length: int = 8
    seed: int = 0
    engine: Engine = field(default_factory=Engine)

    def __post_init__(self) -> None:
        if self.rung is not None and self.rung not in {rung.name for rung in RUNGS}:
            raise ConfigurationError(
                f"unknown model '{self.rung}'; known: {', '.join(rung.name for rung in RUNGS)}, or omit it"
            )
        if not 0.1 <= self.held_out_share <= 0.5:
            raise ConfigurationError(f"invalid held-out share {self.held_out_share} (must be between 0.1 and 0.5)")
        if not 0 <= self.resamples <= _MAX_RESAMPLES or self.run_length < 1:
            raise ConfigurationError(
                f"resamples must be between 0 and {_MAX_RESAMPLES:,}, and the run length at least 1"
            )


def calibrate(seen: Observations, options: FitOptions | None = None) -> Calibration:
    """Raises ``ContractError`` if the trace does not support a fit; never falls back to default coefficients."""
    chosen_options = options or FitOptions()
    held_out = _latest(len(seen), chosen_options.held_out_share)
    require_enough(seen.rows(~held_out), seen.rows(held_out))
    results = tuple(_fit_and_score(rung, seen, held_out, chosen_options) for rung in RUNGS)
    chosen = _choose(results, chosen_options.rung)
    rung = next(each for each in RUNGS if each.name == chosen.name)
    assert chosen.model is not None
    engine = chosen_options.engine if rung.queueing else None
    return Calibration(
        trace=seen.name,
        rung=rung.name,
        model=chosen.model,
        engine=engine,
        rungs=results,
        intervals=_intervals(rung, seen, ~held_out, chosen_options, chosen.model),
        skipped=seen.skipped,
        notes=_notes(seen, rung, chosen, results),
        observed_ms=seen.ttft_ms,
        predicted_ms=predict_ttft_ms(seen, chosen.model, engine),
        held_out=held_out,
        overlapping=seen.overlapping(),
    )


def _fit_and_score(rung: Rung, seen: Observations, held_out: Mask, options: FitOptions) -> RungResult:
    """Held-out requests are in the simulated queue but not in the fit: their weight is 0."""
    refused = refusal(rung, seen.rows(~held_out))
    if refused is not None:
        return RungResult(rung.name, None, refused)
    engine = options.engine if rung.queueing else None
    fit = fit_rung(rung, seen, (~held_out).astype(np.float64), options.engine)
    predicted = predict_ttft_ms(seen, fit.model, engine)
    return RungResult(
        name=rung.name,
        model=fit.model,
        converged=fit.converged,
        choice_error=_cross_error(rung, seen, ~held_out, options, fit.model),
        fitted=score(seen.ttft_ms[~held_out], predicted[~held_out]),
        held_out=score(seen.ttft_ms[held_out], predicted[held_out]),
    )


def _choose(results: tuple[RungResult, ...], wanted: str | None) -> RungResult:
    if wanted is not None:
        result = next(each for each in results if each.name == wanted)
        if result.refused is not None:
            raise ConfigurationError(f"the model '{wanted}' cannot be fitted on this trace: {result.refused}")
        return result
    able = [(each, each.choice_error) for each in results if each.choice_error is not None]
    if not able:
        raise ContractError(f"not calibrated: {results[0].refused}. Collect prompts of different lengths")
    least = min(error for _, error in able)
    # Simpler first: a term must improve the prediction.
    return next(each for each, error in able if error <= _SIMPLER_TOLERANCE * least)


def _cross_error(rung: Rung, seen: Observations, fitted: Mask, options: FitOptions, near: LatencyModel) -> float:
    """Mean absolute log error, cross-validated over stretches of time. Uses the fitted requests only: the held-out ones
    do not influence the choice."""
    engine = options.engine if rung.queueing else None
    errors: list[Floats] = []
    for stretch in np.array_split(np.flatnonzero(fitted), _STRETCHES):
        weights = fitted.astype(np.float64)
        weights[stretch] = 0.0
        model = fit_rung(rung, seen, weights, options.engine, near if rung.queueing else None).model
        predicted = predict_ttft_ms(seen, model, engine)[stretch]
        errors.append(np.abs(np.log(np.maximum(predicted, 1e-3) / seen.ttft_ms[stretch])))
    return float(np.concatenate(errors).mean())


def _intervals(
    rung: Rung, seen: Observations, fitted: Mask, options: FitOptions, near: LatencyModel
) -> dict[str, Interval]:
    """Moving-block bootstrap: runs of neighbours in time are drawn with replacement, as weights on the same queue."""
    if options.resamples == 0:
        return {}
    draws = np.random.default_rng(options.seed)
    places = np.flatnonzero(fitted)
    found = np.empty((options.resamples, len(rung.coefficients)))
    for number in range(options.resamples):
        weights = _resampled(len(seen), places, options.run_length, draws)
        model = fit_rung(rung, seen, weights, options.engine, near).model
        found[number] = [getattr(model, name) for name in rung.coefficients]
    low, high = np.quantile(found, _CONFIDENCE, axis=0)
    return {
        name: Interval(float(low[column]), float(high[column]), options.resamples)
        for column, name in enumerate(rung.coefficients)
    }


def _resampled(count: int, places: npt.NDArray[np.int64], run_length: int, draws: np.random.Generator) -> Floats:
    length = min(run_length, places.size)
    starts = draws.integers(0, places.size - length + 1, size=-(-places.size // length))
    taken = (starts[:, None] + np.arange(length)[None, :]).ravel()[: places.size]
    return np.bincount(places[taken], minlength=count).astype(np.float64)


def _latest(count: int, fraction: float) -> Mask:
    """The latest requests: a model is used on requests that come after it was fitted."""
    chosen = np.zeros(count, dtype=np.bool_)
    chosen[count - round(count * fraction) :] = True
    return chosen


def _notes(seen: Observations, rung: Rung, chosen: RungResult, results: tuple[RungResult, ...]) -> tuple[str, ...]:
    notes = [NO_EVIDENCE] if seen.invented else []
    refused: dict[str, list[str]] = {}
    for each in results:
        if each.refused is not None:
            refused.setdefault(each.refused, []).append(each.name)
    notes += [f"{', '.join(names)}: not fitted, {reason}" for reason, names in refused.items()]
    if not chosen.converged:
        notes.append("the fit and the simulated queue did not converge; the best coefficients found are used")
    zero = [name for name in rung.coefficients if getattr(chosen.model, name) == 0.0]
    if zero:
        notes.append(f"at their lower bound of 0: {', '.join(zero)}")
    return tuple(notes)
