"""Hit ratio over capacity from the cells of a study: exact per policy and bound, and sampled with its error."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from semantic_kv.experiment.cells import BOUNDS, BoundName, Cell, sampled_trace, seed_trace
from semantic_kv.experiment.config import CurvePlan, PolicyChoice
from semantic_kv.experiment.study import Study


@dataclass(frozen=True, slots=True)
class ExactCurve:
    """``name`` is a policy or a bound. Ratios are in the unit and the order of the capacities."""

    name: str
    hit_ratios: tuple[float, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class SampledCurve:
    """Mean, minimum and maximum of the draws, and the mean absolute error of a single draw over all capacities."""

    name: str
    rate: float
    draws: int
    mean: tuple[float, ...]
    least: tuple[float, ...]
    greatest: tuple[float, ...]
    mean_absolute_error: float
    largest_error: float
    sampled_references: int
    references: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Curves:
    capacities: tuple[int, ...]
    policies: tuple[ExactCurve, ...]
    bounds: tuple[ExactCurve, ...]
    sampled: tuple[SampledCurve, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def curves_of(study: Study) -> Curves | None:
    """None if the configuration has no curve."""
    plan = study.config.curve
    if plan is None:
        return None
    exact = tuple(_exact(study, plan, choice) for choice in plan.policies)
    bounds = tuple(_bound(study, plan, name) for name in BOUNDS) if study.config.bounds else ()
    sampled = tuple(
        _sampled(study, plan, choice, rate, truth)
        for choice, truth in zip(plan.policies, exact, strict=True)
        for rate in plan.sample_rates
    )
    return Curves(plan.capacities, exact, bounds, sampled)


def _cells(study: Study, plan: CurvePlan, task: PolicyChoice | BoundName, draw: tuple[float, int] | None) -> list[Cell]:
    seed = study.config.seeds[0]
    base = seed_trace(study.config, seed)
    trace = base if draw is None else sampled_trace(base, *draw)
    sizes = plan.capacities if draw is None else [max(1, round(draw[0] * capacity)) for capacity in plan.capacities]
    return [Cell(trace, plan.model, study.config.unit, size, seed, task) for size in sizes]


def _exact(study: Study, plan: CurvePlan, choice: PolicyChoice) -> ExactCurve:
    found = [study.figures[cell] for cell in _cells(study, plan, choice, None)]
    shares = tuple(each.total.share(study.config.unit) for each in found)
    return ExactCurve(choice.name, shares, sum(each.seconds for each in found))


def _bound(study: Study, plan: CurvePlan, name: BoundName) -> ExactCurve:
    found = [study.bound_figures[cell] for cell in _cells(study, plan, name, None)]
    shares = tuple(each.share(study.config.unit) for each in found)
    return ExactCurve(name, shares, sum(each.seconds for each in found))


def _sampled(study: Study, plan: CurvePlan, choice: PolicyChoice, rate: float, truth: ExactCurve) -> SampledCurve:
    unit = study.config.unit
    draws = [[study.figures[cell] for cell in _cells(study, plan, choice, (rate, draw))] for draw in range(plan.draws)]
    columns = list(zip(*([each.total.share(unit) for each in found] for found in draws), strict=True))
    errors = [abs(ratio - exact) for column, exact in zip(columns, truth.hit_ratios, strict=True) for ratio in column]
    whole = study.figures[_cells(study, plan, choice, None)[0]].total.references
    return SampledCurve(
        choice.name,
        rate,
        plan.draws,
        tuple(sum(column) / len(column) for column in columns),
        tuple(min(column) for column in columns),
        tuple(max(column) for column in columns),
        sum(errors) / len(errors),
        max(errors),
        round(sum(cells[0].total.references for cells in draws) / plan.draws),
        whole,
        sum(cell.seconds for cells in draws for cell in cells) / plan.draws,
    )
