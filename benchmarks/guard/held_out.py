"""A law evaluated on held-out items: observations in, two folds out. For the reports of guard and laboratory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from semblend.calibrate.fit import Held, fit, judge_held
from semblend.calibrate.observations import Observation
from semblend.contract import PlanShape
from semblend.plan.deviation_curve import preset_curve
from semblend.plan.prediction import Calibration

CEILING = 0.02
QUANTILE = 0.75


@dataclass(frozen=True, slots=True)
class Fold:
    """``dots``: class, predicted (central estimate) and measured KL of each item the law covers."""

    number: int
    law: Calibration
    held: Held
    dots: list[tuple[PlanShape, float, float]]


def folds(seen: Sequence[Observation], items: Sequence[str], floor: float, statistic: str) -> Iterator[Fold]:
    """Fitted on every other one of ``items``, evaluated on the rest; both halves once."""
    order = {name: place for place, name in enumerate(sorted(set(items)))}
    for half in (0, 1):
        own = [each for each in seen if order[each.item] % 2 == half]
        rest = [each for each in seen if order[each.item] % 2 != half]
        law = fit(own, preset_curve("llama", 30), floor, QUANTILE, statistic)
        predicted = [(each.shape, law.fitted_kl(each.shape, each.risk, each.fraction), each.kl) for each in rest]
        dots = [(shape, middle, kl) for shape, middle, kl in predicted if middle is not None]
        yield Fold(half, law, judge_held(law, rest, CEILING), dots)
