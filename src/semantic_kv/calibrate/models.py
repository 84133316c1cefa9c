"""The two candidate models, each request alone or all in one engine's queue: observations and weights in, model out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from semantic_kv.calibrate.observations import Observations
from semantic_kv.calibrate.solve import robust_non_negative, unexplained_fraction
from semantic_kv.latency.batching import WORK, batched_times
from sembase.latency import PAIRS_PER_UNIT, Engine, Floats, LatencyModel, attended_pairs

_ROUNDS: Final = 40
_CONVERGED: Final = 1e-4
_MIN_PREDICTED_MS: Final = 0.1
_DAMPED_AFTER: Final = 6
_MIN_UNEXPLAINED: Final = 1e-3

_BASE, _TOKEN, _PAIRS, _CACHED = "base_ms", "ms_per_uncached_token", "ms_per_million_pairs", "ms_per_cached_token"
_QUEUE_TERMS: Final = (_TOKEN, _PAIRS, "step_ms", "ms_per_decoding_stream")


@dataclass(frozen=True, slots=True)
class Fit:
    """``engine`` is None where requests are modelled as alone. ``terms`` were fitted; the others cost nothing.

    ``converged``: the coefficients reproduce the schedule they were fitted on (always, without a queue).
    """

    model: LatencyModel
    terms: tuple[str, ...]
    engine: Engine | None = None
    converged: bool = True


def predict_ttft_ms(seen: Observations, model: LatencyModel, engine: Engine | None) -> Floats:
    """Modelled TTFT of every request from arrivals and token counts alone; observed times are not used."""
    if engine is None:
        return model.ttft_ms(seen.uncached_tokens, seen.cached_tokens)
    times = batched_times(seen.arrival_ms, seen.uncached_tokens, seen.cached_tokens, seen.output_tokens, model, engine)
    return times.first_token_ms - seen.arrival_ms


def fit_alone(seen: Observations, weights: Floats) -> Fit | None:
    """None where even the price of a token cannot be separated from the fixed part.

    Errors are relative to the observed time: requests that waited are one-sided outliers, and this keeps them from
    raising all prices. (With a queue this would be a bias: there, errors are relative to predictions.)
    """
    columns = {
        _BASE: np.ones(len(seen)),
        _TOKEN: seen.uncached_tokens.astype(np.float64),
        _PAIRS: attended_pairs(seen.uncached_tokens, seen.cached_tokens) / PAIRS_PER_UNIT,
        _CACHED: seen.cached_tokens.astype(np.float64),
    }
    relative = weights > 0.0
    terms = [_BASE]
    for name in (_TOKEN, _PAIRS, _CACHED):
        matrix = np.column_stack([columns[each] for each in (*terms, name)]) / seen.ttft_ms[:, None]
        if unexplained_fraction(matrix[relative], len(terms)) >= _MIN_UNEXPLAINED:
            terms.append(name)
        elif name == _TOKEN:
            return None
    matrix = np.column_stack([columns[name] for name in terms])
    return Fit(_model(terms, robust_non_negative(matrix, seen.ttft_ms, weights / seen.ttft_ms**2)), tuple(terms))


def fit_queue(seen: Observations, weights: Floats, engine: Engine, start: LatencyModel) -> Fit:
    """Given the schedule, every time is linear in the coefficients. Fit and schedule alternate until they agree; if
    they never do, the coefficients that predicted best are returned. Weight 0 keeps a request in the queue, out of the
    fit."""
    terms = (_BASE, *_QUEUE_TERMS)
    model, best, best_error = start, start, np.inf
    last: Floats | None = None
    for rounds in range(1, _ROUNDS + 1):
        matrix, target, row_weights, predicted = _queue_rows(seen, weights, model, engine)
        error = _weighted_error(seen.ttft_ms, predicted, weights)
        if error < best_error:
            best, best_error = model, error
        if last is not None and float(np.max(np.abs(predicted - last) / seen.ttft_ms)) < _CONVERGED:
            return Fit(model, terms, engine)
        last = predicted
        found = robust_non_negative(matrix, target, row_weights)
        if rounds > _DAMPED_AFTER:
            found = (found + np.array([getattr(model, name) for name in terms])) / 2.0
        model = _model(terms, found)
    return Fit(best, terms, engine, converged=False)


def _queue_rows(
    seen: Observations, weights: Floats, model: LatencyModel, engine: Engine
) -> tuple[Floats, Floats, Floats, Floats]:
    """One row per first token and, if the total was timed, one per decode: it separates the step from the base."""
    times = batched_times(seen.arrival_ms, seen.uncached_tokens, seen.cached_tokens, seen.output_tokens, model, engine)
    columns = [WORK.index(name) for name in _QUEUE_TERMS]
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


def _weighted_error(observed: Floats, predicted: Floats, weights: Floats) -> float:
    return float(np.average(np.abs(observed - predicted) / observed, weights=weights))


def _model(terms: Sequence[str], found: Floats) -> LatencyModel:
    """Terms that were not fitted cost nothing."""
    values = dict.fromkeys((_BASE, _TOKEN), 0.0) | dict(zip(terms, map(float, found), strict=True))
    return LatencyModel(**values, source="calibrated")
