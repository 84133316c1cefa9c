"""A study in, the sections of its chapter out: verdict, policies, ablation, curves, inside, tenants, provenance."""

from __future__ import annotations

from collections.abc import Iterator

from semantic_kv.experiment.aggregate import original_adaptive
from semantic_kv.experiment.config import BASELINE, PolicyChoice
from semantic_kv.experiment.curves import curves_of
from semantic_kv.experiment.study import CacheSetting, RankedPolicy, Study
from semantic_kv.experiment.verdict import MODELLED, Verdict, is_better
from semantic_kv.report.ablation import ablation_table
from semantic_kv.report.charts_curve import curve_chart, sampling_chart, sampling_table
from semantic_kv.report.charts_inside import evictions_chart, utilization_chart, weights_chart
from semantic_kv.report.charts_policy import (
    MODEL_NAMES,
    hit_rate_chart,
    primary_setting,
    regret_chart,
    shown,
    tokens_saved_chart,
    ttft_chart,
)
from semantic_kv.report.formats import change, interval, milliseconds, percent
from sembase.onepage.chart import Chart, DataTable
from sembase.onepage.formats import count, fraction
from sembase.onepage.markup import Safe, tag
from sembase.onepage.section import Section, card, columns, figure, missing, table, tile


def verdict_section(study: Study, verdict: Verdict) -> Section:
    setting = primary_setting(study)
    lru, bounds = study.baseline(setting), study.bounds(setting)
    best, unit = verdict.settings[0].best, study.config.unit
    won = all(each.lru_wins for each in verdict.settings)
    ruling = tag(
        "div",
        tag("p", verdict.headline, class_="headline"),
        tag("ul", *(tag("li", sentence) for sentence in verdict.sentences)),
        tag("p", MODELLED, class_="note"),
        class_="ruling lru" if won else "ruling",
    )
    tiles = [
        tile(
            "LRU",
            milliseconds(lru.ttft_mean_ms),
            f"hits {percent(lru.share)} of the {unit}; {_setting(study, setting)}",
        ),
        tile(
            "Best other",
            milliseconds(best.ttft_mean_ms),
            f"{best.name}: {change(best.improvement)} of LRU's TTFT saved",
            "good" if is_better(best) else "",
        ),
    ]
    if bounds:
        for name, bound in (("Clairvoyant", bounds.clairvoyant), ("Infinite cache", bounds.ceiling)):
            detail = f"hits {percent(bound.share(unit))} of the {unit}"
            tiles.append(tile(name, milliseconds(bound.ttft_mean_ms), detail))
    if study.config.published:
        gain = change(study.config.published.gain, 2)
        tiles.append(tile("Original's claim", gain, "adaptive against LRU, on its own workload with block_set"))
    return Section("verdict", "Winner and reason", "", (ruling, tag("dl", *tiles, class_="tiles")))


def policies_section(study: Study, prefix: str) -> Section:
    charts = [ttft_chart(study), hit_rate_chart(study), tokens_saved_chart(study), regret_chart(study)]
    cards = [figure(chart, prefix) for chart in charts if chart is not None]
    tables = [
        tag("details", tag("summary", f"All figures: {_setting(study, setting)}"), _ranking_table(study, setting))
        for setting in study.settings()
    ]
    lead = f"The charts show {_setting(study, primary_setting(study))}; every setting has a table below."
    return Section("policies", "Policies", lead, (columns(*cards), *tables))


def _ranking_table(study: Study, setting: CacheSetting) -> Safe:
    heads = (
        *(
            "policy",
            "TTFT (modelled)",
            "TTFT saved",
            "95 % interval",
            "p50",
            "p95",
            "p99",
            "hit / all blocks",
            "hit rate",
        ),
        *("headroom", "admitted", "refused", "evicted"),
    )
    ranking = study.at(setting)
    marks = ["lru" if s.name == BASELINE else "better" if is_better(s) else "" for s in ranking]
    return table(DataTable(heads, tuple(_row(ranked) for ranked in ranking)), row_kinds=marks)


def _row(s: RankedPolicy) -> tuple[str, ...]:
    return (
        *(s.name, milliseconds(s.ttft_mean_ms), change(s.improvement, 2), interval(s.improvement_interval, 2)),
        *(milliseconds(s.ttft_p50_ms), milliseconds(s.ttft_p95_ms), milliseconds(s.ttft_p99_ms)),
        *(fraction(s.total.hit_blocks, s.total.references), percent(s.hit_ratio, 2)),
        "none left" if s.headroom_share is None else percent(s.headroom_share, 0),
        *(count(s.admitted), count(s.refused), count(s.evicted)),
    )


def ablation_section(study: Study) -> Section | None:
    cards = []
    for setting in study.settings():
        drawn = ablation_table(study, setting)
        if drawn is not None:
            cards.append(card(_setting(study, setting).capitalize(), drawn))
    if not cards:
        return None
    lead = (
        "Every eviction policy with every admission policy: fraction of plain LRU's modelled TTFT saved. A good column "
        "is an admission that helps with any eviction; a good row is an eviction that helps with any admission."
    )
    return Section("ablation", "Admission against eviction", lead, tuple(cards))


def curve_section(study: Study, prefix: str) -> Section | None:
    curves = curves_of(study)
    if curves is None:
        return None
    charts = [curve_chart(study, curves), sampling_chart(study, curves)]
    body = [columns(*(figure(chart, prefix) for chart in charts if chart is not None))]
    if curves.sampled:
        body.append(card("Error of the samples", table(sampling_table(curves.sampled))))
    lead = (
        "What more memory gains: nothing where a curve is flat. Where the curves differ, the choice of policy matters."
    )
    return Section("curve", "Miss ratio over capacity", lead, tuple(body))


def inside_section(study: Study, prefix: str) -> Section:
    charts = (evictions_chart(study), utilization_chart(study), weights_chart(study))
    cards = [
        figure(chart, prefix) if chart.layers else missing(chart.title, chart.message, "Nothing to show")
        for chart in charts
    ]
    labels = card("Hit rate by label", _labels(study))
    return Section("inside", "Inside the cache", "", (columns(*cards, labels),))


def _labels(study: Study) -> Safe:
    """LRU, the best other and the adaptive policy of the original, label by label."""
    setting = primary_setting(study)
    chosen = _compared(study, setting)
    rows: dict[str, list[str]] = {}
    for ranked in chosen:
        for cell_labels in zip(*(cell.labels for cell in study.cells_at(setting, ranked.choice)), strict=False):
            hits, seen = sum(each.hit_blocks for each in cell_labels), sum(each.references for each in cell_labels)
            rows.setdefault(cell_labels[0].label, []).append(f"{percent(hits / seen)} ({fraction(hits, seen)})")
    data = DataTable(("label", *(s.name for s in chosen)), tuple((label, *cells) for label, cells in rows.items()))
    return table(data)


def tenants_section(study: Study) -> Section | None:
    """First seed. A policy that is good on average may be bad for one tenant."""
    setting = primary_setting(study)
    chosen = _compared(study, setting)
    views = [study.cells_at(setting, ranked.choice)[0].tenants for ranked in chosen]
    if len(views[0]) < 2:
        return None
    rows = tuple(
        (
            group[0].tenant,
            count(group[0].tally.requests),
            *(f"{percent(each.tally.hit_ratio)} ({milliseconds(each.tally.ttft_mean_ms)})" for each in group),
        )
        for group in zip(*views, strict=True)
    )
    data = DataTable(("tenant", "requests", *(s.name for s in chosen)), rows)
    lead = "Hit rate and mean modelled TTFT by tenant, the largest first. Tenants never share a block."
    return Section("tenants", "By tenant", lead, (card(_setting(study, setting).capitalize(), table(data)),))


def observed_section(chart: Chart, prefix: str) -> Section:
    drawn = figure(chart, prefix) if chart.layers else missing(chart.title, chart.message, "Nothing to show")
    lead = "The latency model compared with the observed server, under plain LRU at the given capacity."
    return Section("observed", "Observed against modelled", lead, (columns(drawn),))


def _compared(study: Study, setting: CacheSetting) -> tuple[RankedPolicy, ...]:
    ranking = shown(study, setting)
    others = [each for each in ranking if each.choice != PolicyChoice(BASELINE)]
    adaptive = original_adaptive(ranking)
    return tuple(dict.fromkeys((study.baseline(setting), *others[:1], *([adaptive] if adaptive else []))))


def provenance_section(study: Study, facts: dict[str, str]) -> Section:
    rows = tuple(_provenance(study)) + tuple(facts.items())
    return Section(
        "provenance",
        "Provenance",
        "",
        (card("Facts", table(DataTable(("fact", "value"), rows), text_columns=(1,))),),
    )


def _provenance(study: Study) -> Iterator[tuple[str, str]]:
    config, first = study.config, study.traces[0]
    yield "study", config.description
    yield "trace", f"{first.name}, {first.requests:,} requests, {first.references:,} block references"
    yield "distinct blocks", f"{first.distinct_blocks:,} (the same block after another prefix counts as another block)"
    yield "trace digest", first.digest
    yield "seeds", ", ".join(map(str, config.seeds))
    model = config.latency
    yield (
        "latency model",
        f"{model.base_ms:g} ms + {model.ms_per_uncached_token:g} ms per uncached token ({model.source})",
    )
    yield "cells", f"{len(study.figures):,}, {sum(cell.seconds for cell in study.figures.values()):.1f} s simulated"


def _setting(study: Study, setting: CacheSetting) -> str:
    return f"{MODEL_NAMES[setting[0]]}, {setting[1]:,} {study.config.unit}"
