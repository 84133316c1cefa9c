"""Several studies in, the rows of aggregate_summary out: the columns of the original, then ours."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from semantic_kv.cache.result import CacheModel, Unit
from semantic_kv.experiment.config import ALWAYS, BASELINE
from semantic_kv.experiment.study import CacheSetting, RankedPolicy, Study
from semantic_kv.experiment.verdict import verdict_of

_ADAPTIVE: Final = "adaptive_semantic"
_ITS_ADMISSION: Final = "score"


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateRow:
    """The first eight names are fixed. All figures are of one cache model and capacity; hit rates are of blocks, shares
    are in the unit of the capacity. None: not in the study."""

    experiment: str
    best_policy_by_avg_ttft: str
    adaptive_avg_ttft: float | None
    lru_avg_ttft: float
    adaptive_relative_ttft_improvement_vs_lru: float | None
    adaptive_hit_rate: float | None
    lru_hit_rate: float
    adaptive_relative_hit_rate_improvement_vs_lru: float | None
    model: CacheModel
    capacity: int
    unit: Unit
    lru_wins: bool
    best_avg_ttft: float
    best_hit_rate: float
    best_improvement: float
    best_improvement_low: float | None
    best_improvement_high: float | None
    lru_with_admission: str | None
    lru_with_admission_improvement: float | None
    best_eviction_alone: str | None
    best_eviction_alone_improvement: float | None
    lru_share: float
    clairvoyant_share: float | None
    ceiling_share: float | None
    best_headroom_share: float | None
    adaptive_policy: str | None
    published_improvement: float | None
    sentence: str


COLUMNS: Final = tuple(field.name for field in fields(AggregateRow))


def aggregate_rows(study: Study) -> tuple[AggregateRow, ...]:
    """One per cache model and capacity."""
    verdict = verdict_of(study)
    by_setting = {each.setting: each for each in verdict.settings}
    sentences = dict(zip(_order(study), verdict.sentences, strict=True))
    return tuple(
        _row(study, setting, by_setting[setting].lru_wins, f"{study.config.experiment}, {sentences[setting]}")
        for setting in study.settings()
    )


def _order(study: Study) -> list[CacheSetting]:
    """The order of the verdict's sentences: settings that LRU wins first."""
    return [each.setting for each in sorted(verdict_of(study).settings, key=lambda each: not each.lru_wins)]


def _row(study: Study, setting: CacheSetting, lru_wins: bool, sentence: str) -> AggregateRow:
    ranking, lru, bounds = study.at(setting), study.baseline(setting), study.bounds(setting)
    best = lru if lru_wins else ranking[0]
    adaptive = original_adaptive(ranking)
    admission = next((s for s in ranking if s.choice.evict == BASELINE and s.choice.admit != ALWAYS), None)
    eviction = next((s for s in ranking if s.choice.admit == ALWAYS and s is not lru), None)
    low, high = best.improvement_interval or (None, None)
    return AggregateRow(
        experiment=study.config.experiment,
        best_policy_by_avg_ttft=best.name,
        adaptive_avg_ttft=adaptive.ttft_mean_ms if adaptive else None,
        lru_avg_ttft=lru.ttft_mean_ms,
        adaptive_relative_ttft_improvement_vs_lru=adaptive.improvement if adaptive else None,
        adaptive_hit_rate=adaptive.hit_ratio if adaptive else None,
        lru_hit_rate=lru.hit_ratio,
        adaptive_relative_hit_rate_improvement_vs_lru=_relative(adaptive, lru),
        model=setting[0],
        capacity=setting[1],
        unit=study.config.unit,
        lru_wins=lru_wins,
        best_avg_ttft=best.ttft_mean_ms,
        best_hit_rate=best.hit_ratio,
        best_improvement=best.improvement,
        best_improvement_low=low,
        best_improvement_high=high,
        lru_with_admission=admission.name if admission else None,
        lru_with_admission_improvement=admission.improvement if admission else None,
        best_eviction_alone=eviction.name if eviction else None,
        best_eviction_alone_improvement=eviction.improvement if eviction else None,
        lru_share=lru.share,
        clairvoyant_share=bounds.clairvoyant.share(study.config.unit) if bounds else None,
        ceiling_share=bounds.ceiling.share(study.config.unit) if bounds else None,
        best_headroom_share=best.headroom_share,
        adaptive_policy=adaptive.name if adaptive else None,
        published_improvement=study.config.published.gain if study.config.published else None,
        sentence=sentence,
    )


def original_adaptive(ranking: tuple[RankedPolicy, ...]) -> RankedPolicy | None:
    """The original's adaptive policy, preferably with its own admission; None if the study does not contain it."""
    found = [each for each in ranking if each.choice.evict == _ADAPTIVE]
    own = [each for each in found if each.choice.admit == _ITS_ADMISSION]
    return next(iter(own or found), None)


def _relative(adaptive: RankedPolicy | None, lru: RankedPolicy) -> float | None:
    return adaptive.hit_ratio / lru.hit_ratio - 1 if adaptive and lru.hit_ratio else None
