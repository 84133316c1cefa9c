"""Ranked policies in, the winner and the reason out, as sentences with figures. Settings that LRU wins come first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from semantic_kv.cache.result import Unit
from semantic_kv.experiment.config import ALWAYS, BASELINE, PolicyChoice
from semantic_kv.experiment.study import CacheSetting, RankedPolicy, Study

TIE: Final = 0.001  # of LRU's modelled TTFT: differences up to a thousandth are ties
# Fractions of a gain: below the first, one axis alone is not enough; from the second on, it gets most of it.
_ENOUGH, _LARGE_PART = 0.9, 0.75
MODELLED: Final = (
    "TTFT is modelled from uncached prompt tokens, not measured: it ranks policies and does not time a GPU."
)


@dataclass(frozen=True, slots=True)
class SettingVerdict:
    """``eviction_only`` and ``admission_only`` are the best policies that differ from LRU in one axis only; None if
    the study contains none. ``is_empty``: no policy can be shown to be better, because LRU
    hits as much as an infinite cache, or because all policies tie."""

    setting: CacheSetting
    lru: RankedPolicy
    best: RankedPolicy
    eviction_only: RankedPolicy | None
    admission_only: RankedPolicy | None
    lru_wins: bool
    is_empty: bool

    @property
    def worse_than_lru(self) -> float:
        """How much slower the best other policy is; meaningful if LRU wins."""
        return -self.best.improvement


@dataclass(frozen=True, slots=True)
class Verdict:
    settings: tuple[SettingVerdict, ...]
    headline: str
    sentences: tuple[str, ...]


def verdict_of(study: Study) -> Verdict:
    settings = tuple(_judge(study, setting) for setting in study.settings())
    return Verdict(settings, _headline(settings), tuple(_sentence(study, each) for each in _lru_first(settings)))


def is_better(ranked: RankedPolicy) -> bool:
    """Better than LRU by more than a tie and, if there is an interval, by more than chance."""
    interval = ranked.improvement_interval
    return ranked.improvement > TIE and (interval is None or interval[0] > 0)


def _judge(study: Study, setting: CacheSetting) -> SettingVerdict:
    ranking = study.at(setting)
    lru = study.baseline(setting)
    others = [each for each in ranking if each.choice != PolicyChoice(BASELINE)]
    best = others[0] if others else lru
    return SettingVerdict(
        setting,
        lru,
        best,
        _first(others, lambda choice: choice.admit == ALWAYS),
        _first(others, lambda choice: choice.evict == BASELINE and choice.admit != ALWAYS),
        not is_better(best),
        _is_empty(study, setting, lru, others),
    )


def _is_empty(study: Study, setting: CacheSetting, lru: RankedPolicy, others: Sequence[RankedPolicy]) -> bool:
    bound = study.bounds(setting)
    if bound is not None and lru.share >= (1 - TIE) * bound.ceiling.share(study.config.unit):
        return True
    return bool(others) and all(abs(each.improvement) <= TIE for each in others)


def _first(ranking: Sequence[RankedPolicy], wanted: Callable[[PolicyChoice], bool]) -> RankedPolicy | None:
    return next((each for each in ranking if wanted(each.choice)), None)


def _lru_first(settings: Sequence[SettingVerdict]) -> list[SettingVerdict]:
    return sorted(settings, key=lambda each: not each.lru_wins)


def _headline(settings: Sequence[SettingVerdict]) -> str:
    won = [each for each in settings if each.lru_wins]
    if all(each.is_empty for each in settings):
        return (
            "Nothing can be learned here: LRU hits as much as an infinite cache would, or all policies tie. "
            "Choose a smaller capacity, or a trace that repeats more."
        )
    if len(won) == len(settings):
        lead = "LRU wins" if all(each.worse_than_lru > TIE for each in won) else "No policy is proven better than LRU"
        return f"{lead}: none in this study beats it by more than a tie or chance in any setting."
    lost = [each for each in settings if not each.lru_wins]
    first = max(lost, key=lambda each: each.best.improvement)
    where = _where(first.setting)
    lead = f"LRU wins in {len(won)} of {len(settings)} settings{_of_them_empty(won)}. " if won else ""
    return f"{lead}{first.best.name} saves {100 * first.best.improvement:.1f} % of LRU's modelled TTFT ({where})."


def _of_them_empty(won: Sequence[SettingVerdict]) -> str:
    empty = sum(each.is_empty for each in won)
    return f", {empty} of which can teach nothing" if empty else ""


def _sentence(study: Study, judged: SettingVerdict) -> str:
    where = _where(judged.setting)
    bound = study.bounds(judged.setting)
    unit = study.config.unit
    attainable = ""
    if bound:
        is_limit = bound.clairvoyant.standing != "attained"
        lead = "No policy can hit more than" if is_limit else "Knowing the future, one rule hits"
        attainable = f" {lead} {_hits(bound.clairvoyant.share(unit), unit)}."
    if judged.lru_wins:
        empty = " Nothing can be learned at this capacity." if judged.is_empty else ""
        return f"{where}: {_next(judged)}; LRU hits {_hits(judged.lru.share, unit)}.{attainable}{empty}"
    best = judged.best
    headroom = "" if best.headroom_share is None else f", {100 * best.headroom_share:.0f} % of the way to the bound"
    return (
        f"{where}: {best.name} wins with {best.ttft_mean_ms:.2f} ms against LRU's {judged.lru.ttft_mean_ms:.2f} "
        f"({100 * best.improvement:.2f} % saved{_interval(best)}); it hits {_hits(best.share, unit)}, LRU "
        f"{100 * judged.lru.share:.2f} %{headroom}. {_why(judged)}{attainable}"
    )


def _hits(share: float, unit: Unit) -> str:
    return f"{100 * share:.2f} % of the {unit}"


def _next(judged: SettingVerdict) -> str:
    if judged.best is judged.lru:
        return "LRU wins (no other policy was simulated)"
    slower = judged.worse_than_lru
    if abs(slower) <= TIE:
        return f"LRU wins or ties: {judged.best.name} has the same TTFT ({-100 * slower:+.2f} % saved)"
    if slower < 0:
        ahead = f"{judged.best.name} is {-100 * slower:.2f} % ahead within chance{_interval(judged.best)}"
        return f"no policy is proven better than LRU: {ahead}"
    return f"LRU wins; the next, {judged.best.name}, is {100 * slower:.2f} % slower (modelled TTFT)"


def _why(judged: SettingVerdict) -> str:
    """Which axis the gain comes from: LRU with the best admission alone, and the best eviction alone."""
    whole = judged.best.improvement
    admission, eviction = (
        None if each is None else max(0.0, each.improvement) for each in (judged.admission_only, judged.eviction_only)
    )
    if admission is None or eviction is None or judged.admission_only is None or judged.eviction_only is None:
        return "Admission and eviction were not ablated, so it is unknown which of them causes the gain."
    parts = (
        f"LRU with admission {judged.admission_only.choice.admit} alone gets {100 * admission / whole:.0f} % of that "
        f"gain, eviction {judged.eviction_only.choice.evict} alone {100 * eviction / whole:.0f} %"
    )
    more, less = max(admission, eviction), min(admission, eviction)
    if more < _ENOUGH * whole:
        return f"{parts}: both are needed."
    if less >= _LARGE_PART * whole:
        return f"{parts}: either alone gets most of it."
    return f"{parts}: it comes from {'admission, not eviction' if admission > eviction else 'eviction, not admission'}."


def _interval(ranked: RankedPolicy) -> str:
    interval = ranked.improvement_interval
    return "" if interval is None else f", 95 % interval {100 * interval[0]:+.2f} to {100 * interval[1]:+.2f} %"


def _where(setting: CacheSetting) -> str:
    model, capacity = setting
    return f"{'prefix tree' if model == 'prefix_tree' else 'block set'}, capacity {capacity:,}"
