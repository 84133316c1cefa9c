"""summary.md: the winner and the reason first, settings that LRU wins before others, then the tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from semantic_kv.bound.result import BoundKind
from semantic_kv.experiment.aggregate import original_adaptive
from semantic_kv.experiment.curves import curves_of
from semantic_kv.experiment.study import CacheSetting, RankedPolicy, Study
from semantic_kv.experiment.verdict import MODELLED, Verdict
from semantic_kv.report.ablation import ablation_rows
from semantic_kv.report.charts_curve import sampling_table
from semantic_kv.report.charts_policy import MODEL_NAMES, shown
from semantic_kv.report.formats import change, interval, milliseconds, percent
from sembase.onepage.formats import NOT_MEASURED, count, fraction, plural

_TIGHTNESS: Final[dict[BoundKind, str]] = {
    "optimum": "exact for a cache that may drop a block while serving it; no policy that pins blocks exceeds it",
    "bound": "an upper bound that counts every token as a block; it may not be reachable",
    "attained": "what one rule that knows the future attains; not a bound, because requests repeat a block within them",
}


def summary_md(study: Study, verdict: Verdict) -> str:
    config = study.config
    lines = [f"# {config.experiment}", "", f"**{verdict.headline}**", "", *(f"- {each}" for each in verdict.sentences)]
    lines += ["", MODELLED, "", config.description, "", *_facts(study), *_published(study)]
    for setting in study.settings():
        lines += _setting(study, setting)
    lines += _curves(study)
    return "\n".join(lines) + "\n"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return [*head, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)]


def _facts(study: Study) -> list[str]:
    first = study.traces[0]
    seeds = len(study.config.seeds)
    each = f"{plural(first.requests, 'request')}, {plural(first.references, 'block reference')}"
    several = f" (first of {seeds} seeds)" if seeds > 1 else ""
    latency = study.config.latency
    return [
        f"Trace {first.name}{several}: {each}, {plural(first.distinct_blocks, 'distinct block')}. "
        f"Modelled TTFT = {latency.base_ms:g} ms + {latency.ms_per_uncached_token:g} ms per uncached token"
        f" (coefficients: {latency.source}).",
        "",
    ]


def _published(study: Study) -> list[str]:
    """The original's figures for its own version of the workload, and ours under both cache models."""
    published = study.config.published
    if published is None:
        return []
    rows = [
        (
            "as published by the original",
            milliseconds(published.lru_avg_ttft_ms),
            milliseconds(published.adaptive_avg_ttft_ms),
            change(published.gain, 2),
        )
    ]
    for setting in study.settings():
        adaptive = original_adaptive(study.at(setting))
        if adaptive is not None:
            rows.append(
                (
                    f"ours, {MODEL_NAMES[setting[0]]}, {adaptive.name}",
                    milliseconds(study.baseline(setting).ttft_mean_ms),
                    milliseconds(adaptive.ttft_mean_ms),
                    change(adaptive.improvement, 2),
                )
            )
    table = markdown_table(("modelled TTFT", "LRU", "adaptive", "adaptive gain"), rows)
    return ["## Compared with the published figures", "", *table, ""]


def _setting(study: Study, setting: CacheSetting) -> list[str]:
    bounds, unit = study.bounds(setting), study.config.unit
    title = f"## {MODEL_NAMES[setting[0]].capitalize()}, {setting[1]:,} {study.config.unit}"
    lines = ["", title, ""]
    if bounds:
        lines += [
            f"Of all {unit}: infinite cache {percent(bounds.ceiling.share(unit), 2)}, clairvoyant "
            f"{percent(bounds.clairvoyant.share(unit), 2)} ({_TIGHTNESS[bounds.clairvoyant.standing]}).",
            "",
        ]
    columns = (
        "policy",
        "TTFT (modelled)",
        "TTFT saved",
        "95 % interval",
        "p95",
        "hit blocks / all",
        "hit rate",
        "headroom",
    )
    lines += markdown_table(columns, [_row(ranked) for ranked in shown(study, setting)])
    ablation = ablation_rows(study, setting)
    if ablation:
        admissions = study.config.ablation.admit if study.config.ablation else ()
        lines += ["", "Hit rate, eviction by admission (the same table in TTFT is in report.html):", ""]
        body = [(name, *(percent(s.hit_ratio, 2) if s else NOT_MEASURED for s in row)) for name, row in ablation]
        lines += markdown_table(("eviction", *admissions), body)
    return lines


def _row(ranked: RankedPolicy) -> tuple[str, ...]:
    return (
        ranked.name,
        milliseconds(ranked.ttft_mean_ms),
        change(ranked.improvement, 2),
        interval(ranked.improvement_interval, 2),
        milliseconds(ranked.ttft_p95_ms),
        fraction(ranked.total.hit_blocks, ranked.total.references),
        percent(ranked.hit_ratio, 2),
        "none left" if ranked.headroom_share is None else percent(ranked.headroom_share, 1),
    )


def _curves(study: Study) -> list[str]:
    curves = curves_of(study)
    if curves is None:
        return []
    every = (*curves.policies, *curves.bounds)
    rows = [
        (count(size), *(f"{1 - each.hit_ratios[i]:.4f}" for each in every)) for i, size in enumerate(curves.capacities)
    ]
    lines = [
        "",
        "## Miss ratio over capacity (exact)",
        "",
        *markdown_table(("capacity", *(e.name for e in every)), rows),
    ]
    if curves.sampled:
        table = sampling_table(curves.sampled)
        lines += ["", "## Sampled curves against the exact ones", "", *markdown_table(table.columns, table.rows)]
    return lines
