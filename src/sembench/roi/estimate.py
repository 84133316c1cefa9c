"""Expected saving and break-even. Uncertainty is propagated by resampling measured requests and drawing the rate.
Saving of a request of length L at reuse rate r: r * (cold - warm)(L) - (1 - r) * (miss + captured * capture) * cold(L).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, ContractError
from sembench.roi.costs import MeasuredCosts, ReusedRequest
from sembench.roi.lengths import LengthHistogram
from sembench.roi.rate import ReuseRate

Floats = NDArray[np.float64]
_MIN_REQUESTS: Final = 6
_MIN_PER_KNOT: Final = 3
_CURVE: Final = tuple(i / 20 for i in range(21))


@dataclass(frozen=True, slots=True)
class Band:
    """The mean of the samples and their 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Floats) -> Band:
        low, high = np.quantile(samples, [0.025, 0.975])
        return cls(float(samples.mean()), float(low), float(high))


@dataclass(frozen=True, slots=True)
class BucketEstimate:
    """Requests of ``low`` to ``high`` tokens. ``saving_ms`` is expected per request at the given rate."""

    low: int
    high: int
    requests: float
    extrapolated: float
    cold_ms: Band
    warm_ms: Band
    miss_ms: Band | None
    capture_ms: Band | None
    saving_ms: Band


@dataclass(frozen=True, slots=True)
class RoiEstimate:
    """``break_even_rate`` is None if reuse would not pay off even at a rate of 1. ``curve``: saving by reuse rate."""

    saving_ms: Band
    saving_share: Band
    probability_of_saving: float
    break_even_rate: Band | None
    never_pays_share: float
    buckets: tuple[BucketEstimate, ...]
    curve: tuple[tuple[float, Band], ...]
    measured_low: int
    measured_high: int
    extrapolated_share: float


@dataclass(frozen=True, slots=True)
class RoiOptions:
    capture_rate: float = 1.0
    extrapolate: bool = False
    draws: int = 4_000
    seed: int = 0


def estimate(histogram: LengthHistogram, costs: MeasuredCosts, rate: ReuseRate, options: RoiOptions) -> RoiEstimate:
    knots = _knots(costs.requests)
    low = min(request.prompt_tokens for request in costs.requests)
    high = max(request.prompt_tokens for request in costs.requests)
    lengths, weights, outside = _grouped(histogram, low, high)
    if outside.any() and not options.extrapolate:
        share = weights[outside].sum() / weights.sum()
        raise ConfigurationError(
            f"{100 * share:.1f} % of the requests are outside the measured lengths ({low:,} to {high:,} tokens); "
            "measure those lengths, or pass --extrapolate"
        )
    random = np.random.default_rng(options.seed)
    cold, warm = _resampled_times(knots, lengths, random, options.draws)
    miss = _resampled_mean(costs.miss_shares, random, options.draws)
    capture = _resampled_mean(costs.capture_shares, random, options.draws)
    burden = np.zeros(options.draws) if miss is None else miss.copy()
    if capture is not None:
        burden += options.capture_rate * capture
    rates = rate.draw(random, options.draws)[:, np.newaxis]
    gain, loss = cold - warm, burden[:, np.newaxis] * cold
    saving = rates * gain - (1 - rates) * loss
    share_of = weights / weights.sum()
    mean_gain, mean_loss, mean_cold = (matrix @ share_of for matrix in (gain, loss, cold))
    total = saving @ share_of
    pays = mean_gain > 0
    needed = np.clip(mean_loss / np.where(pays, mean_gain + mean_loss, 1.0), 0.0, 1.0)
    return RoiEstimate(
        saving_ms=Band.of(total),
        saving_share=Band.of(total / mean_cold),
        probability_of_saving=float((total > 0).mean()),
        break_even_rate=Band.of(needed[pays]) if pays.any() else None,
        never_pays_share=float(1 - pays.mean()),
        buckets=_buckets(lengths, weights, outside, cold, warm, miss, capture, saving),
        curve=tuple((r, Band.of(r * mean_gain - (1 - r) * mean_loss)) for r in _CURVE),
        measured_low=low,
        measured_high=high,
        extrapolated_share=float(weights[outside].sum() / weights.sum()),
    )


def _grouped(histogram: LengthHistogram, low: int, high: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Merges lengths within 1/32 of a doubling into their mean, to bound the work for traces with many lengths."""
    lengths = np.array(list(histogram.counts), dtype=np.float64)
    weights = np.array(list(histogram.counts.values()), dtype=np.float64)
    lengths, weights = lengths[weights > 0], weights[weights > 0]
    is_outside = (lengths < low) | (lengths > high)
    keys = 2 * np.floor(32 * np.log2(lengths)) + is_outside
    _, group = np.unique(keys, return_inverse=True)
    sums: Floats = np.bincount(group, weights).astype(np.float64)
    middle: Floats = np.bincount(group, weights * lengths) / sums
    outside: NDArray[np.bool_] = np.bincount(group, is_outside) > 0
    return middle, sums, outside


def _knots(requests: Sequence[ReusedRequest]) -> list[list[ReusedRequest]]:
    """Measured requests in groups of similar length. A group that is too small for a mean joins its neighbour."""
    if len(requests) < _MIN_REQUESTS:
        raise ContractError(
            f"{len(requests)} measured requests with confirmed reuse are too few for an estimate "
            f"(at least {_MIN_REQUESTS}): pass more --costs"
        )
    groups: list[list[ReusedRequest]] = []
    last = None
    for request in sorted(requests, key=lambda each: each.prompt_tokens):
        step = int(2 * math.log2(request.prompt_tokens))
        if groups and (step == last or len(groups[-1]) < _MIN_PER_KNOT):
            groups[-1].append(request)
        else:
            groups.append([request])
        last = step
    if len(groups) > 1 and len(groups[-1]) < _MIN_PER_KNOT:
        groups[-2].extend(groups.pop())
    return groups


def _resampled_times(
    knots: Sequence[Sequence[ReusedRequest]], lengths: Floats, random: np.random.Generator, draws: int
) -> tuple[Floats, Floats]:
    """Mean cold and warm time per draw and length. The two times of a request are drawn together."""
    places, cold, warm = [], [], []
    for knot in knots:
        times = np.array([(each.cold_ms, each.warm_ms) for each in knot])
        drawn = times[random.integers(0, len(knot), (draws, len(knot)))].mean(axis=1)
        cold.append(drawn[:, 0])
        warm.append(drawn[:, 1])
        places.append(sum(each.prompt_tokens for each in knot) / len(knot))
    at = np.array(places)
    return _between(lengths, at, np.stack(cold, axis=1)), _between(lengths, at, np.stack(warm, axis=1))


def _between(lengths: Floats, places: Floats, values: Floats) -> Floats:
    """Linear interpolation between the means. Beyond the last mean the value is constant, before the first one it is
    proportional to the length; both are conservative.
    """
    right = np.clip(np.searchsorted(places, lengths), 1, max(1, len(places) - 1))
    if len(places) == 1:
        found = np.repeat(values, len(lengths), axis=1)
    else:
        step = np.clip((lengths - places[right - 1]) / (places[right] - places[right - 1]), 0.0, 1.0)
        found = values[:, right - 1] * (1 - step) + values[:, right] * step
    shrunk: Floats = found * np.minimum(1.0, lengths / places[0])
    return shrunk


def _resampled_mean(shares: Sequence[float], random: np.random.Generator, draws: int) -> Floats | None:
    if not shares:
        return None
    values = np.asarray(shares, dtype=np.float64)
    means = values[random.integers(0, len(values), (draws, len(values)))].mean(axis=1)
    charged: Floats = np.maximum(means, 0.0)  # a negative cost of a miss or a capture is noise, not a gain
    return charged


def _buckets(
    lengths: Floats,
    weights: Floats,
    outside: NDArray[np.bool_],
    cold: Floats,
    warm: Floats,
    miss: Floats | None,
    capture: Floats | None,
    saving: Floats,
) -> tuple[BucketEstimate, ...]:
    """One bucket per power of two of the length."""
    steps = np.floor(np.log2(lengths)).astype(int)
    found = []
    for step in np.unique(steps):
        chosen = steps == step
        share = weights[chosen] / weights[chosen].sum()
        mean_cold = cold[:, chosen] @ share
        found.append(
            BucketEstimate(
                low=int(2**step),
                high=int(2 ** (step + 1)),
                requests=float(weights[chosen].sum()),
                extrapolated=float(weights[chosen & outside].sum()),
                cold_ms=Band.of(mean_cold),
                warm_ms=Band.of(warm[:, chosen] @ share),
                miss_ms=None if miss is None else Band.of(miss * mean_cold),
                capture_ms=None if capture is None else Band.of(capture * mean_cold),
                saving_ms=Band.of(saving[:, chosen] @ share),
            )
        )
    return tuple(found)
