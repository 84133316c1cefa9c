"""The candidate models (rungs, from simple to complex), and the fit of one: observations, weights in, model out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from semantic_kv.calibrate.observations import Observations
from semantic_kv.calibrate.solve import robust_non_negative
from semantic_kv.latency.batching import WORK, batched_times
from sembase.latency import PAIRS_PER_UNIT, Engine, Floats, LatencyModel, attended_pairs

_ROUNDS: Final = 40
_ROUNDS_WITH_START: Final = 10
_CONVERGED: Final = 1e-4
_MIN_PREDICTED_MS: Final = 0.1
_DAMPED_AFTER: Final = 6


@dataclass(frozen=True, slots=True)
class Rung:
    """``terms`` besides ``base_ms``. ``queueing``: requests share the simulated engine; otherwise each is alone."""

    name: str
    terms: tuple[str, ...]
    queueing: bool = False

    @property
    def coefficients(self) -> tuple[str, ...]:
        return ("base_ms", *self.terms)


_TOKEN, _PAIRS, _CACHED = "ms_per_uncached_token", "ms_per_million_pairs", "ms_per_cached_token"
_STEP, _STREAM = "step_ms", "ms_per_decoding_stream"
RUNGS: Final = (
    Rung("linear", (_TOKEN,)),
    Rung("attention", (_TOKEN, _PAIRS)),
    Rung("attention+cached", (_TOKEN, _PAIRS, _CACHED)),
    Rung("queue", (_TOKEN, _STEP, _STREAM), queueing=True),
    Rung("queue+attention", (_TOKEN, _PAIRS, _STEP, _STREAM), queueing=True),
)


@dataclass(frozen=True, slots=True)
class RungFit:
    """``converged``: the fitted coefficients reproduce the schedule they were fitted on (always, without a queue)."""

    model: LatencyModel
    rounds: int
    converged: bool


def fit_rung(
    rung: Rung, seen: Observations, weights: Floats, engine: Engine, near: LatencyModel | None = None
) -> RungFit:
    """Minimises relative errors with less weight for outliers. Weight 0 keeps a request in the queue, out of the fit.

    ``near`` is the starting point, if a similar fit is known.
    """
    if rung.queueing:
        return _fit_queue(rung, seen, weights, engine, near)
    return RungFit(_fit_alone(rung, seen, weights), 1, True)


def predict_ttft_ms(seen: Observations, model: LatencyModel, engine: Engine | None) -> Floats:
    """Modelled TTFT of every request from arrivals and token counts alone; observed times are not used."""
    if engine is None:
        return model.ttft_ms(seen.uncached_tokens, seen.cached_tokens)
    times = batched_times(seen.arrival_ms, seen.uncached_tokens, seen.cached_tokens, seen.output_tokens, model, engine)
    return times.first_token_ms - seen.arrival_ms


def alone_matrix(rung: Rung, seen: Observations) -> Floats:
    """The work of each request alone on the server, one column per coefficient of the rung."""
    amounts: dict[str, Floats] = {
        "base_ms": np.ones(len(seen)),
        _TOKEN: seen.uncached_tokens.astype(np.float64),
        _PAIRS: attended_pairs(seen.uncached_tokens, seen.cached_tokens) / PAIRS_PER_UNIT,
        _CACHED: seen.cached_tokens.astype(np.float64),
        _STEP: np.maximum(seen.output_tokens - 1, 0).astype(np.float64),
        _STREAM: np.maximum(seen.output_tokens - 1, 0).astype(np.float64),
    }
    return np.column_stack([amounts[name] for name in rung.coefficients])


def _fit_alone(rung: Rung, seen: Observations, weights: Floats) -> LatencyModel:
    """Errors are relative to the observed time: without a queue, requests that waited are one-sided outliers, and this
    keeps them from raising all prices. (With a queue this would be a bias: errors are relative to predictions.)"""
    return _model(rung, robust_non_negative(alone_matrix(rung, seen), seen.ttft_ms, weights / seen.ttft_ms**2))


def _fit_queue(rung: Rung, seen: Observations, weights: Floats, engine: Engine, near: LatencyModel | None) -> RungFit:
    """Given the schedule, every time is linear in the coefficients. Fit and schedule alternate until they agree; if
    they never do, the coefficients that predicted best are returned."""
    model = near or _starting_point(seen, weights)
    best, best_error, converged, rounds = model, np.inf, False, 0
    last: Floats | None = None
    for rounds in range(1, (_ROUNDS if near is None else _ROUNDS_WITH_START) + 1):
        matrix, target, row_weights, predicted = _queue_rows(rung, seen, weights, model, engine)
        error = _weighted_error(seen.ttft_ms, predicted, weights)
        if error < best_error:
            best, best_error = model, error
        if last is not None and float(np.max(np.abs(predicted - last) / seen.ttft_ms)) < _CONVERGED:
            converged = True
            break
        last = predicted
        found = robust_non_negative(matrix, target, row_weights)
        if rounds > _DAMPED_AFTER:
            found = (found + np.array([getattr(model, name) for name in rung.coefficients])) / 2.0
        model = _model(rung, found)
    return RungFit(model if converged else best, rounds, converged)


def _queue_rows(
    rung: Rung, seen: Observations, weights: Floats, model: LatencyModel, engine: Engine
) -> tuple[Floats, Floats, Floats, Floats]:
    """One row per first token and, if the total was timed, one per decode: it separates the step from the base."""
    times = batched_times(seen.arrival_ms, seen.uncached_tokens, seen.cached_tokens, seen.output_tokens, model, engine)
    columns = [WORK.index(name) for name in rung.terms]
    first = np.column_stack([np.ones(len(seen)), times.first_token_work[:, columns]])
    decode_ms = seen.total_ms - seen.ttft_ms
    timed = (seen.output_tokens > 1) & (np.nan_to_num(decode_ms) > 0.0)
    after = np.column_stack([np.zeros(int(timed.sum())), times.decode_work[timed][:, columns]])
    predicted = times.first_token_ms - seen.arrival_ms
    predicted_decode = (times.finish_ms - times.first_token_ms)[timed]
    # The starting point has no price for decoding; until a pass has one, the observed time is the better scale.
    scale = np.concatenate([predicted, np.where(predicted_decode > 0.0, predicted_decode, decode_ms[timed])])
    target = np.concatenate([seen.ttft_ms, decode_ms[timed]])
    row_weights = np.concatenate([weights, weights[timed]]) / np.maximum(scale, _MIN_PREDICTED_MS) ** 2
    return np.vstack([first, after]), target, row_weights, predicted


def _starting_point(seen: Observations, weights: Floats) -> LatencyModel:
    """From requests that arrived at an idle server, if there are enough; else from all (slightly too high)."""
    idle = ~seen.overlapping() & (weights > 0.0)
    chosen = idle if int(idle.sum()) >= 10 else weights > 0.0
    return _fit_alone(RUNGS[0], seen.rows(chosen), weights[chosen])


def _weighted_error(observed: Floats, predicted: Floats, weights: Floats) -> float:
    return float(np.average(np.abs(observed - predicted) / observed, weights=weights))


def _model(rung: Rung, found: Floats) -> LatencyModel:
    """Terms that the rung does not have cost nothing in its model."""
    values = dict.fromkeys(("base_ms", _TOKEN, _PAIRS, _CACHED, _STEP, _STREAM), 0.0)
    values |= {name: float(value) for name, value in zip(rung.coefficients, found, strict=True)}
    return LatencyModel(**values, source="calibrated")
