"""A study, a curve or a replay in, its folder of files out: JSON, CSV, Markdown, plots and report.html."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from semantic_kv.experiment.aggregate import COLUMNS, aggregate_rows
from semantic_kv.experiment.cells import Cell, cell_json
from semantic_kv.experiment.curves import Curves, curves_of
from semantic_kv.experiment.observed import ObservedComparison
from semantic_kv.experiment.store import write_bytes, write_json, write_text
from semantic_kv.experiment.study import Study
from semantic_kv.experiment.verdict import MODELLED, verdict_of
from semantic_kv.report.charts_curve import curve_chart, sampling_chart, sampling_table
from semantic_kv.report.charts_inside import evictions_chart, utilization_chart, weights_chart
from semantic_kv.report.charts_observed import observed_chart
from semantic_kv.report.charts_policy import hit_rate_chart, regret_chart, tokens_saved_chart, ttft_chart
from semantic_kv.report.formats import change, milliseconds, percent
from semantic_kv.report.metrics_csv import Value, metrics_csv, written
from semantic_kv.report.page import page_html
from semantic_kv.report.summary_md import markdown_table, summary_md
from sembase.onepage.chart import Chart
from sembase.onepage.formats import count
from sembase.onepage.page import style_of
from sembase.onepage.png import chart_png, rasteriser

SCHEMA: Final = "semantic_kv.results.v1"


def write_study(study: Study, folder: Path, facts: dict[str, str]) -> None:
    verdict = verdict_of(study)
    write_json(folder / "results.json", results_json(study, facts))
    write_text(folder / "metrics.csv", metrics_csv(study))
    write_text(folder / "summary.md", summary_md(study, verdict))
    write_pngs(study_charts(study), folder)
    write_text(folder / "report.html", page_html([study], study.config.experiment, facts))


def study_charts(study: Study) -> list[Chart]:
    """The six plots with fixed names first, then the others."""
    curves = curves_of(study)
    charts = [
        ttft_chart(study),
        hit_rate_chart(study),
        tokens_saved_chart(study),
        evictions_chart(study),
        weights_chart(study),
        utilization_chart(study),
        regret_chart(study),
        curve_chart(study, curves) if curves else None,
        sampling_chart(study, curves) if curves else None,
    ]
    return [chart for chart in charts if chart is not None]


def results_json(study: Study, facts: dict[str, str]) -> dict[str, Any]:
    verdict, curves = verdict_of(study), curves_of(study)
    return {
        "schema": SCHEMA,
        "experiment": study.config.experiment,
        "ttft": MODELLED,
        "verdict": {"headline": verdict.headline, "sentences": list(verdict.sentences)},
        "config": study.config.to_json(),
        "provenance": facts,
        "traces": [asdict(trace) for trace in study.traces],
        "standings": study.ranking_json(),
        "bounds": [_bounds_json(study, setting) for setting in study.settings()] if study.config.bounds else [],
        "curves": curves.to_json() if curves else None,
        "bound_cells": [{"cell": cell_json(c), **figures.to_json()} for c, figures in study.bound_figures.items()],
        "cells": [{"cell": cell_json(cell), **_cell_figures(study, cell)} for cell in study.figures],
    }


def write_aggregate(studies: Sequence[Study], output: Path, facts: dict[str, str]) -> None:
    """aggregate_summary.csv and .md, and one report over all studies."""
    rows = [row for study in studies for row in aggregate_rows(study)]
    write_text(output / "aggregate_summary.csv", written(COLUMNS, [_flat(asdict(row)) for row in rows]))
    won = [row for row in rows if row.lru_wins]
    lost = [row for row in rows if not row.lru_wins]
    head = f"LRU wins or ties in {len(won)} of {len(rows)} settings."
    lines = ["# Aggregate summary", "", f"**{head}** {MODELLED}", ""]
    lines += ["## Where LRU wins", "", *([f"- {row.sentence}" for row in won] or ["- nowhere"]), ""]
    lines += ["## Where another policy wins", "", *([f"- {row.sentence}" for row in lost] or ["- nowhere"]), ""]
    table = [
        (
            *(row.experiment, row.model, f"{row.capacity:,} {row.unit}", row.best_policy_by_avg_ttft),
            *(_ms(row.adaptive_avg_ttft), _ms(row.lru_avg_ttft)),
            change(row.adaptive_relative_ttft_improvement_vs_lru, 2),
            *(percent(row.adaptive_hit_rate, 2), percent(row.lru_hit_rate, 2)),
            change(row.adaptive_relative_hit_rate_improvement_vs_lru, 1),
            f"{row.lru_with_admission or 'none'} {change(row.lru_with_admission_improvement, 2)}",
            percent(row.lru_share, 2),
            percent(row.clairvoyant_share, 2),
            change(row.published_improvement, 2),
        )
        for row in rows
    ]
    columns = (
        *("experiment", "model", "capacity", "best_policy_by_avg_ttft", "adaptive_avg_ttft", "lru_avg_ttft"),
        *("adaptive_relative_ttft_improvement_vs_lru", "adaptive_hit_rate", "lru_hit_rate"),
        *("adaptive_relative_hit_rate_improvement_vs_lru", "LRU + best admission", "lru_share", "clairvoyant_share"),
        "published_improvement",
    )
    write_text(output / "aggregate_summary.md", "\n".join([*lines, *markdown_table(columns, table)]) + "\n")
    write_text(output / "report.html", page_html(studies, "KV cache studies", facts))


def _cell_figures(study: Study, cell: Cell) -> dict[str, Any]:
    """Without the batches behind the intervals; series over time only for the first seed (they take megabytes)."""
    figures = study.figures[cell].to_json()
    del figures["batches"]
    if cell.seed != study.config.seeds[0] or cell.capacity != study.config.capacities[0]:
        del figures["used_over_time"], figures["weights"]
    return figures


def _bounds_json(study: Study, setting: Any) -> dict[str, Any]:
    bounds = study.bounds(setting)
    assert bounds is not None
    return {"model": setting[0], "capacity": setting[1], **asdict(bounds)}


def _ms(value: float | None) -> str:
    return milliseconds(value)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {key: ("yes" if value else "no") if isinstance(value, bool) else value for key, value in row.items()}


def write_curves(study: Study, folder: Path, facts: dict[str, str]) -> None:
    curves = _curves(study)
    write_json(folder / "miss_ratio_curve.json", results_json(study, facts))
    write_text(
        folder / "miss_ratio_curve.csv", written(("policy", "sample_rate", "capacity", "miss_ratio"), _rows(curves))
    )
    charts = (curve_chart(study, curves), sampling_chart(study, curves))
    write_pngs([chart for chart in charts if chart is not None], folder)
    write_text(folder / "report.html", page_html([study], f"Miss-ratio curve of {study.traces[0].name}", facts))


def curve_text(study: Study) -> str:
    """Miss ratios with capacities as rows, policies and bounds as columns; then the errors of the samples."""
    curves = _curves(study)
    every = (*curves.policies, *curves.bounds)
    widths = [max(10, len(each.name)) for each in every]
    lines = ["miss ratio  " + "  ".join(f"{e.name:>{w}}" for e, w in zip(every, widths, strict=True))]
    for i, size in enumerate(curves.capacities):
        cells = (f"{1 - each.hit_ratios[i]:>{width}.4f}" for each, width in zip(every, widths, strict=True))
        lines.append(f"{size:>10,}  " + "  ".join(cells))
    table = sampling_table(curves.sampled)
    lines += ["  ".join(row) for row in ([table.columns, *table.rows] if curves.sampled else [])]
    return "\n".join(lines) + "\n"


def _rows(curves: Curves) -> Iterator[dict[str, Value]]:
    for exact in (*curves.policies, *curves.bounds):
        for size, ratio in zip(curves.capacities, exact.hit_ratios, strict=True):
            yield {"policy": exact.name, "sample_rate": 1.0, "capacity": size, "miss_ratio": 1 - ratio}
    for sampled in curves.sampled:
        for size, ratio in zip(curves.capacities, sampled.mean, strict=True):
            yield {"policy": sampled.name, "sample_rate": sampled.rate, "capacity": size, "miss_ratio": 1 - ratio}


def _curves(study: Study) -> Curves:
    found = curves_of(study)
    assert found is not None  # the command always sets a curve
    return found


def write_replay(
    study: Study, comparison: ObservedComparison | None, notes: tuple[str, ...], folder: Path, facts: dict[str, str]
) -> None:
    """``notes`` describe the latency model."""
    results = results_json(study, facts)
    results["observed"] = observed_json(comparison)
    results["latency_notes"] = list(notes)
    write_json(folder / "replay_results.json", results)
    write_text(folder / "replay_metrics.csv", metrics_csv(study))
    observed = "\n".join(
        ["", "## Comparison with the observed TTFT", "", *(f"- {line}" for line in (*notes, *_lines(comparison)))]
    )
    write_text(folder / "replay_summary.md", summary_md(study, verdict_of(study)) + observed + "\n")
    charts = [
        replace(ttft_chart(study), key="replay_policy_avg_ttft"),
        replace(tokens_saved_chart(study), key="replay_tokens_saved"),
        replace(hit_rate_chart(study), key="replay_hit_rate"),
        observed_chart(comparison),
    ]
    write_pngs(charts, folder)
    write_text(folder / "report.html", page_html([study], study.config.experiment, facts, observed_chart(comparison)))


def observed_json(comparison: ObservedComparison | None) -> dict[str, object] | None:
    if comparison is None:
        return None
    return {
        "policy": comparison.policy,
        "model": comparison.model,
        "requests": int(comparison.observed_ms.size),
        "observed_ttft_mean_ms": float(comparison.observed_ms.mean()),
        "modelled_ttft_mean_ms": float(comparison.modelled_ms.mean()),
        "median_absolute_percentage_error": comparison.median_absolute_percentage_error,
        "observed_hit_tokens": comparison.observed_hit_tokens,
        "modelled_hit_tokens": comparison.modelled_hit_tokens,
        "hit_token_pairs": comparison.hit_token_pairs,
    }


def _lines(comparison: ObservedComparison | None) -> list[str]:
    if comparison is None:
        return ["The trace has no observed TTFT, so the latency model was not checked."]
    lines = [
        f"{count(comparison.observed_ms.size)} requests with an observed TTFT, simulated under {comparison.policy}: "
        f"median absolute error of the modelled TTFT {percent(comparison.median_absolute_percentage_error)}.",
    ]
    if comparison.observed_hit_tokens is not None:
        lines.append(
            f"Hit tokens of {count(comparison.hit_token_pairs)} requests: observed "
            f"{count(comparison.observed_hit_tokens)}, simulated {count(comparison.modelled_hit_tokens)}."
        )
    lines.append(
        "What this supports: on this trace and with this latency model, a policy keeps more reusable tokens. "
        "What it does not show: that a real server gets faster."
    )
    return lines


def write_pngs(charts: Sequence[Chart], directory: Path) -> None:
    rasterise, style = rasteriser("simulator", "drawing plots"), style_of("semantic_kv.report")
    for chart in charts:
        write_bytes(directory / f"{chart.key}.png", chart_png(chart, style, rasterise))
