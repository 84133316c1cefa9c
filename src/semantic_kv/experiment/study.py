"""Finished cells in, ranked policies out: figures with 95 % bootstrap intervals, compared with LRU and the bounds.

Intervals resample seeds if there are several, else contiguous stretches of the one trace. The latter show how much a
figure depends on some stretches; the cache itself is not simulated again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from semantic_kv.bound.result import weakest
from semantic_kv.cache.result import CacheModel, Unit
from semantic_kv.experiment.cells import BOUNDS, BoundName, Cell, seed_trace
from semantic_kv.experiment.config import BASELINE, ExperimentConfig, PolicyChoice
from semantic_kv.experiment.figures import BoundFigures, CellFigures, Figures, Tally

MIN_UNITS: Final = 5  # fewer units give no interval
_DRAWS: Final = 2_000
_SEED: Final = 20_260
Interval = tuple[float, float]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Resampled:
    """Bootstrap draws of one policy's hit ratio and mean TTFT; every policy uses the same units in the same draw."""

    hit_ratio: Floats
    ttft_ms: Floats


def resample(units: Sequence[Tally]) -> Resampled | None:
    if len(units) < MIN_UNITS:
        return None
    random = np.random.default_rng(_SEED)
    chosen = random.integers(0, len(units), size=(_DRAWS, len(units)))
    rows = [(unit.hit_blocks, unit.references, unit.ttft_sum_ms, unit.requests) for unit in units]
    hits, references, ttft, requests = np.array(rows, dtype=np.float64)[chosen].sum(axis=1).T
    return Resampled(hits / np.maximum(references, 1.0), ttft / np.maximum(requests, 1.0))


def interval_of(draws: Floats) -> Interval:
    low, high = np.percentile(draws, (2.5, 97.5))
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class TraceFacts:
    key: str
    name: str
    digest: str
    requests: int
    references: int
    distinct_blocks: int
    prompt_tokens: int
    block_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPolicy:
    """One policy at one capacity under one cache model. Ratios are quotients of sums over seeds; TTFT is modelled.

    ``improvement`` is 1 - TTFT / LRU's TTFT. ``share`` is the hit ratio in the unit of the capacity; ``headroom_share``
    the fraction of the gap between LRU and the clairvoyant that the policy closes (None if there is no gap); ``regret``
    the clairvoyant's share minus the policy's.
    """

    model: CacheModel
    capacity: int
    choice: PolicyChoice
    total: Tally
    share: float
    hit_ratio: float
    hit_ratio_interval: Interval | None
    ttft_mean_ms: float
    ttft_interval: Interval | None
    ttft_p50_ms: float
    ttft_p95_ms: float
    ttft_p99_ms: float
    admitted: int
    refused: int
    evicted: int
    improvement: float
    improvement_interval: Interval | None
    hit_ratio_gain: float
    hit_ratio_gain_interval: Interval | None
    headroom_share: float | None
    regret: float | None

    @property
    def name(self) -> str:
        return self.choice.name


@dataclass(frozen=True, slots=True)
class Bounds:
    """Both bounds at one capacity under one cache model, summed over seeds."""

    ceiling: BoundFigures
    clairvoyant: BoundFigures


CacheSetting = tuple[CacheModel, int]


class Study:
    """All figures of one experiment, and the queries that the outputs make."""

    def __init__(self, config: ExperimentConfig, traces: Sequence[TraceFacts], figures: Mapping[Cell, Figures]) -> None:
        self.config = config
        self.traces = tuple(traces)
        self.figures = {cell: each for cell, each in figures.items() if isinstance(each, CellFigures)}
        self.bound_figures = {cell: each for cell, each in figures.items() if isinstance(each, BoundFigures)}

    def settings(self) -> tuple[CacheSetting, ...]:
        return tuple((model, capacity) for model in self.config.models for capacity in self.config.capacities)

    @cached_property
    def ranking(self) -> tuple[RankedPolicy, ...]:
        return tuple(ranked for setting in self.settings() for ranked in self._ranked(setting))

    def at(self, setting: CacheSetting) -> tuple[RankedPolicy, ...]:
        """Sorted by modelled TTFT, best first; ties by hit ratio, then name, the plain baseline before its variants."""
        return tuple(each for each in self.ranking if (each.model, each.capacity) == setting)

    def result_of(self, setting: CacheSetting, choice: PolicyChoice) -> RankedPolicy | None:
        return next((each for each in self.at(setting) if each.choice == choice), None)

    def baseline(self, setting: CacheSetting) -> RankedPolicy:
        found = self.result_of(setting, PolicyChoice(BASELINE))
        assert found is not None  # choices() always contains it
        return found

    def bounds(self, setting: CacheSetting) -> Bounds | None:
        if not self.config.bounds:
            return None
        return Bounds(*(add_bounds(self.bounds_at(setting, name)) for name in BOUNDS))

    def cells_at(self, setting: CacheSetting, choice: PolicyChoice) -> tuple[CellFigures, ...]:
        """One per seed, in the order of the seeds."""
        return tuple(self.figures[cell] for cell in self._cells(setting, choice))

    def bounds_at(self, setting: CacheSetting, name: BoundName) -> tuple[BoundFigures, ...]:
        return tuple(self.bound_figures[cell] for cell in self._cells(setting, name))

    def _cells(self, setting: CacheSetting, task: PolicyChoice | BoundName) -> list[Cell]:
        model, capacity = setting
        unit, seeds = self.config.unit, self.config.seeds
        return [Cell(seed_trace(self.config, seed), model, unit, capacity, seed, task) for seed in seeds]

    def _ranked(self, setting: CacheSetting) -> list[RankedPolicy]:
        bounds = self.bounds(setting)
        base = self.cells_at(setting, PolicyChoice(BASELINE))
        base_draws = resample(_units(base))
        found = [
            _ranked_policy(setting, choice, self.config.unit, self.cells_at(setting, choice), base, base_draws, bounds)
            for choice in self.config.choices()
        ]
        return sorted(found, key=lambda s: (round(s.ttft_mean_ms, 9), -s.hit_ratio, s.name != BASELINE, s.name))

    def ranking_json(self) -> list[dict[str, Any]]:
        return [{"policy": each.name, **asdict(each)} for each in self.ranking]


def add(tallies: Iterable[Tally]) -> Tally:
    kept = list(tallies)
    return Tally(
        requests=sum(tally.requests for tally in kept),
        references=sum(tally.references for tally in kept),
        hit_blocks=sum(tally.hit_blocks for tally in kept),
        prompt_tokens=sum(tally.prompt_tokens for tally in kept),
        hit_tokens=sum(tally.hit_tokens for tally in kept),
        ttft_sum_ms=sum(tally.ttft_sum_ms for tally in kept),
    )


def add_bounds(found: Sequence[BoundFigures]) -> BoundFigures:
    blocks = [each.hit_blocks for each in found]
    known = [count for count in blocks if count is not None]
    sums = [each.ttft_sum_ms for each in found if each.ttft_sum_ms is not None]
    return BoundFigures(
        weakest(each.standing for each in found),
        sum(each.requests for each in found),
        sum(each.references for each in found),
        sum(known) if len(known) == len(blocks) else None,
        sum(each.prompt_tokens for each in found),
        sum(each.hit_tokens for each in found),
        sum(sums) if len(sums) == len(found) else None,
        sum(each.seconds for each in found),
    )


def _units(cells: Sequence[CellFigures]) -> Sequence[Tally]:
    return [cell.total for cell in cells] if len(cells) > 1 else cells[0].batches


def _ranked_policy(
    setting: CacheSetting,
    choice: PolicyChoice,
    unit: Unit,
    cells: Sequence[CellFigures],
    base: Sequence[CellFigures],
    base_draws: Resampled | None,
    bounds: Bounds | None,
) -> RankedPolicy:
    total, base_total, draws = add(c.total for c in cells), add(c.total for c in base), resample(_units(cells))
    reach = bounds.clairvoyant.share(unit) if bounds else None
    headroom = reach - base_total.share(unit) if reach is not None else None
    intervals = _intervals(draws, base_draws)
    return RankedPolicy(
        model=setting[0],
        capacity=setting[1],
        choice=choice,
        total=total,
        share=total.share(unit),
        hit_ratio=total.hit_ratio,
        hit_ratio_interval=intervals[0],
        ttft_mean_ms=total.ttft_mean_ms,
        ttft_interval=intervals[1],
        ttft_p50_ms=sum(cell.ttft_p50_ms for cell in cells) / len(cells),
        ttft_p95_ms=sum(cell.ttft_p95_ms for cell in cells) / len(cells),
        ttft_p99_ms=sum(cell.ttft_p99_ms for cell in cells) / len(cells),
        admitted=sum(cell.admitted for cell in cells),
        refused=sum(cell.refused for cell in cells),
        evicted=sum(cell.evicted for cell in cells),
        improvement=1 - total.ttft_mean_ms / base_total.ttft_mean_ms if base_total.ttft_mean_ms else 0.0,
        improvement_interval=intervals[2],
        hit_ratio_gain=total.hit_ratio - base_total.hit_ratio,
        hit_ratio_gain_interval=intervals[3],
        headroom_share=(total.share(unit) - base_total.share(unit)) / headroom
        if headroom and headroom > 1e-9
        else None,
        regret=reach - total.share(unit) if reach is not None else None,
    )


def _intervals(draws: Resampled | None, base: Resampled | None) -> tuple[Interval | None, ...]:
    """Intervals of the hit ratio, the TTFT, the improvement over LRU, and the gain in hit ratio."""
    if draws is None or base is None:
        return None, None, None, None
    return (
        interval_of(draws.hit_ratio),
        interval_of(draws.ttft_ms),
        interval_of(1 - draws.ttft_ms / base.ttft_ms),
        interval_of(draws.hit_ratio - base.hit_ratio),
    )
