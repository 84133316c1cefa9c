"""Observations in, a law per class out: least squares on logarithms, then the factor that most items stayed below.

The factor is the ceil((n + 1) * quantile)-th smallest of the n items' largest measured-over-fitted ratios. The law was
fitted on the same items, so it is slightly optimistic on new ones: evaluate it on held-out items (``judge_held``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np

from sembase.errors import ConfigurationError
from semblend.calibrate.observations import Observation
from semblend.contract import PlanShape
from semblend.plan.deviation_curve import DeviationCurve
from semblend.plan.prediction import Calibration, Law

_MIN_KL: Final = 1e-6  # keeps the logarithm of a KL at or below the floor finite


def fit(
    observations: Sequence[Observation], curve: DeviationCurve, kl_floor: float, quantile: float, statistic: str
) -> Calibration:
    """Classes with too few items for the quantile get no law, and the gate declines them."""
    _check(quantile)
    policies = {seen.policy for seen in observations} - {None}
    if len(policies) > 1:
        names = ", ".join(sorted(map(str, policies)))
        raise ConfigurationError(f"the observations are of several policies ({names}): fit those of each by themselves")
    by_shape: dict[PlanShape, list[Observation]] = defaultdict(list)
    for seen in observations:
        by_shape[seen.shape].append(seen)
    laws = {shape: law for shape, seen in by_shape.items() if (law := _law(seen, kl_floor, quantile)) is not None}
    return Calibration(curve, kl_floor, quantile, statistic, laws, next(iter(policies), None))


def min_items(quantile: float) -> int:
    """The minimum number of items of a class for a law at this quantile."""
    _check(quantile)
    return next(items for items in count(1) if _rank(items, quantile) <= items)


def _check(quantile: float) -> None:
    if not 0.0 < quantile < 1.0:
        raise ConfigurationError("the quantile must be between 0 and 1")


def _rank(items: int, quantile: float) -> int:
    return math.ceil((items + 1) * quantile)


def _law(seen: Sequence[Observation], floor: float, quantile: float) -> Law | None:
    items = {each.item for each in seen}
    rank = _rank(len(items), quantile)
    risky = [each for each in seen if each.risk > 0.0]
    if rank > len(items) or not risky:
        return None
    fraction = np.array([each.fraction for each in risky])
    level = np.array([math.log(max(each.kl - floor, _MIN_KL) / each.risk) for each in risky])
    spread = fraction - fraction.mean()
    slope = float(spread @ level / (spread @ spread)) if np.any(spread) else 0.0
    decay = max(0.0, -slope)  # recomputing more never raises KL: a rising fit is noise
    scale = math.exp(float(level.mean()) + decay * float(fraction.mean()))
    worst: dict[str, float] = defaultdict(float)
    for each in seen:
        fitted = floor + scale * each.risk * math.exp(-decay * each.fraction)
        worst[each.item] = max(worst[each.item], each.kl / max(fitted, _MIN_KL))
    factor = sorted(worst.values())[rank - 1]
    return Law(scale, decay, factor, len(items), max(each.risk for each in seen))


@dataclass(frozen=True, slots=True)
class Held:
    """Results on held-out items. ``rank_correlation`` is Spearman's; None where it is not defined."""

    observations: int
    rank_correlation: float | None
    covered: int
    served: int
    served_mean_kl: float | None
    served_over_ceiling: int
    oracle_served: int
    items: int


def judge_held(calibration: Calibration, held: Sequence[Observation], ceiling: float) -> Held:
    """Predicted against measured KL, and what the gate serves compared with an oracle that knows each item's KL.

    An item is served at the smallest measured budget that is not below the one the gate requires.
    """
    pairs = [
        (fitted, each.kl, calibration.predicted_kl(each.shape, each.risk, each.fraction))
        for each in held
        if (fitted := calibration.fitted_kl(each.shape, each.risk, each.fraction)) is not None
    ]
    by_item: dict[str, list[Observation]] = defaultdict(list)
    for each in held:
        by_item[each.item].append(each)
    served = [_served_kl(calibration, sorted(seen, key=lambda o: o.fraction), ceiling) for seen in by_item.values()]
    kls = [kl for kl in served if kl is not None]
    return Held(
        len(pairs),
        rank_correlation([fitted for fitted, _, _ in pairs], [kl for _, kl, _ in pairs]),
        sum(kl <= upper for _, kl, upper in pairs if upper is not None),
        len(kls),
        sum(kls) / len(kls) if kls else None,
        sum(kl > ceiling for kl in kls),
        sum(min(each.kl for each in seen) <= ceiling for seen in by_item.values()),
        len(by_item),
    )


def _served_kl(calibration: Calibration, seen: Sequence[Observation], ceiling: float) -> float | None:
    fraction = calibration.min_fraction(seen[0].shape, seen[0].risk, ceiling, seen[-1].fraction)
    return None if fraction is None else next(each.kl for each in seen if each.fraction >= fraction)


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's, equal values at their mean rank; None where it is not defined."""
    if len(first) < 2:
        return None
    a, b = (_ranks(each) for each in (first, second))
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size else None


def _ranks(values: Iterable[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(np.asarray(list(values)), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = (ends - (counts - 1) / 2.0)[inverse]
    return ranks
