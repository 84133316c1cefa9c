"""Charts that compare policies at one capacity, for both cache models: modelled TTFT, hit rate, tokens saved, regret.

Three of them are among the six plots with fixed names; all are the first charts of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from semantic_kv.cache.result import CacheModel, Unit
from semantic_kv.experiment.config import BASELINE, PolicyChoice
from semantic_kv.experiment.study import MIN_UNITS, CacheSetting, Interval, RankedPolicy, Study
from semantic_kv.report.formats import milliseconds, percent, points, tick_share
from semantic_kv.report.tones import Tone
from sembase.onepage.chart import Bar, Bars, Chart, DataTable, Rule
from sembase.onepage.formats import NOT_MEASURED, tick_ms
from sembase.onepage.ticks import category_axis, linear_axis

MODEL_NAMES: Final[dict[CacheModel, str]] = {"prefix_tree": "prefix tree", "block_set": "block set"}
_TONES: Final[dict[CacheModel, Tone]] = {"prefix_tree": "c1", "block_set": "c6"}


@dataclass(frozen=True, slots=True)
class _Measure:
    value: Callable[[RankedPolicy], float]
    interval: Callable[[RankedPolicy], Interval | None]
    written: Callable[[float], str]
    tick: Callable[[float], str]
    axis: str


def primary_setting(study: Study) -> CacheSetting:
    """The setting of charts that show only one: the first cache model and the first capacity of the configuration."""
    return study.config.models[0], study.config.capacities[0]


def shown(study: Study, setting: CacheSetting) -> tuple[RankedPolicy, ...]:
    """The configured policies, LRU and the winner, best first; the ablation table shows the others."""
    named = {PolicyChoice(BASELINE), *study.config.policies, study.at(setting)[0].choice}
    return tuple(ranked for ranked in study.at(setting) if ranked.choice in named)


def ttft_chart(study: Study) -> Chart:
    measure = _Measure(
        lambda s: s.ttft_mean_ms,
        lambda s: s.ttft_interval,
        milliseconds,
        tick_ms,
        "mean modelled TTFT, lower is better",
    )
    bounds = study.bounds(primary_setting(study))
    reach = bounds.clairvoyant.ttft_mean_ms if bounds else None
    mark = (reach, f"clairvoyant {milliseconds(reach)}") if reach is not None else None
    best, lru = shown(study, primary_setting(study))[0], study.baseline(primary_setting(study))
    lru_ttft = milliseconds(lru.ttft_mean_ms)
    message = (
        f"No policy is better than LRU with {lru_ttft}"
        if best.name == BASELINE
        else f"Best: {best.name} with {milliseconds(best.ttft_mean_ms)}; LRU {lru_ttft}"
    ) + f" ({_setting(study)}). Modelled, not measured."
    return _bars(study, "policy_comparison_avg_ttft", "Modelled time to first token", message, measure, mark)


def hit_rate_chart(study: Study) -> Chart:
    measure = _Measure(
        lambda s: s.hit_ratio, lambda s: s.hit_ratio_interval, percent, tick_share, "hit blocks / all blocks"
    )
    bounds = study.bounds(primary_setting(study))
    lru = study.baseline(primary_setting(study))
    message = f"LRU hits {percent(lru.hit_ratio)} of the blocks ({_setting(study)})."
    if bounds:
        message += f" No cache of any size would hit more than {percent(bounds.ceiling.share('blocks'))}."
    mark = _bound_mark(study, "blocks")
    return _bars(study, "policy_comparison_hit_rate", "Block hit rate", message, measure, mark)


def tokens_saved_chart(study: Study) -> Chart:
    measure = _Measure(
        lambda s: s.total.token_hit_ratio, lambda s: None, percent, tick_share, "hit tokens / prompt tokens"
    )
    lru = study.baseline(primary_setting(study))
    message = f"LRU saves {lru.total.hit_tokens:,} of {lru.total.prompt_tokens:,} prompt tokens ({_setting(study)})."
    return _bars(
        study,
        "tokens_saved_by_policy",
        "Prompt tokens saved",
        message,
        measure,
        _bound_mark(study, "tokens"),
    )


def _bound_mark(study: Study, unit: Unit) -> tuple[float, str] | None:
    """The clairvoyant bounds hits in the unit of the capacity; it is not a bound in the other unit."""
    bounds = study.bounds(primary_setting(study))
    if bounds is None or study.config.unit != unit:
        return None
    reach = bounds.clairvoyant.share(unit)
    return reach, f"clairvoyant {percent(reach)}"


def regret_chart(study: Study) -> Chart | None:
    """How far each policy is below the clairvoyant; None without bounds."""
    setting = primary_setting(study)
    rows = sorted(shown(study, setting), key=lambda ranked: ranked.regret or 0.0)
    if any(ranked.regret is None for ranked in rows):
        return None
    regrets = [ranked.regret or 0.0 for ranked in rows]
    lru = study.baseline(setting)
    best = "no policy has less regret" if rows[0].name == BASELINE else f"{rows[0].name} {percent(regrets[0])}"
    bars = tuple(
        Bar(i, regret, percent(regret), f"{row.name}: {points(regret)} below the clairvoyant")
        for i, (row, regret) in enumerate(zip(rows, regrets, strict=True))
    )
    table = DataTable(
        ("policy", f"hit {study.config.unit}", "regret", "fraction of the LRU-to-bound headroom"),
        tuple((r.name, percent(r.share), percent(r.regret), _share(r.headroom_share)) for r in rows),
    )
    return Chart(
        "regret_against_bound",
        "Regret against the clairvoyant",
        f"Regret in hit {study.config.unit}: LRU {percent(lru.regret)}, {best}.",
        linear_axis(
            f"hit {study.config.unit}: the clairvoyant's ratio minus the policy's",
            min(0.0, *regrets),
            max(regrets),
            tick_share,
        ),
        category_axis([row.name for row in rows], [BASELINE], dense=True),
        (Bars("", "c1", bars), Rule(lru.regret or 0.0, "LRU", vertical=True, tone="baseline", dashed=True)),
        table,
    )


def _bars(study: Study, key: str, title: str, message: str, measure: _Measure, mark: tuple[float, str] | None) -> Chart:
    setting = primary_setting(study)
    order = [ranked.choice for ranked in shown(study, setting)]
    models = study.config.models
    layers: list[Bars | Rule] = []
    ends = [0.0]
    for at, model in enumerate(models):
        offset = 0.0 if len(models) == 1 else -0.19 + 0.38 * at
        rows = [study.result_of((model, setting[1]), choice) for choice in order]
        bars = tuple(_bar(i + offset, row, measure) for i, row in enumerate(rows) if row)
        ends += [max(bar.end, bar.high or 0.0) for bar in bars]
        layers.append(Bars(MODEL_NAMES[model], _TONES[model], bars, thin=len(models) > 1))
    if mark:
        ends.append(mark[0])
        layers.append(Rule(mark[0], mark[1], vertical=True, tone="bound", dashed=True))
    return Chart(
        key,
        title,
        message,
        linear_axis(measure.axis, 0.0, max(ends) or 1.0, measure.tick),
        category_axis([choice.name for choice in order], [BASELINE], dense=True),
        tuple(layers),
        _table(study, order, setting[1], measure),
        _interval_note(study),
    )


def _bar(y: float, ranked: RankedPolicy, measure: _Measure) -> Bar:
    value, interval = measure.value(ranked), measure.interval(ranked)
    low, high = interval or (None, None)
    title = f"{ranked.name}, {MODEL_NAMES[ranked.model]}: {measure.written(value)}"
    return Bar(y, value, measure.written(value), title, low=low, high=high)


def _table(study: Study, order: Sequence[PolicyChoice], capacity: int, measure: _Measure) -> DataTable:
    models = study.config.models
    rows = []
    for choice in order:
        found = [study.result_of((model, capacity), choice) for model in models]
        rows.append((choice.name, *(measure.written(measure.value(s)) if s else NOT_MEASURED for s in found)))
    return DataTable(("policy", *(MODEL_NAMES[model] for model in models)), tuple(rows))


def _setting(study: Study) -> str:
    model, capacity = primary_setting(study)
    return f"{MODEL_NAMES[model]}, {capacity:,} {study.config.unit}"


def _interval_note(study: Study) -> str:
    count = len(study.config.seeds)
    if study.baseline(primary_setting(study)).ttft_interval is None:
        return f"No intervals: fewer than {MIN_UNITS} seeds or stretches of the trace."
    units = f"{count} seeds" if count > 1 else "48 stretches of the trace"
    return f"Whiskers: 95 % intervals by bootstrap over {units}."


def _share(value: float | None) -> str:
    return "no headroom" if value is None else percent(value, 0)
