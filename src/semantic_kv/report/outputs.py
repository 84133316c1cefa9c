"""A study -> its folder: results.json, metrics.csv, summary.md, plots, report.html; and what joins several studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from onepage.chart import Chart
from semantic_kv.experiment.aggregate import COLUMNS, aggregate_rows
from semantic_kv.experiment.cells import Cell, cell_json
from semantic_kv.experiment.curves import curves_of
from semantic_kv.experiment.files import write_json, write_text
from semantic_kv.experiment.study import Study
from semantic_kv.experiment.verdict import MODELLED, verdict_of
from semantic_kv.report import metrics_csv
from semantic_kv.report.charts_curve import curve_chart, sampling_chart
from semantic_kv.report.charts_inside import evictions_chart, utilization_chart, weights_chart
from semantic_kv.report.charts_policy import hit_rate_chart, regret_chart, tokens_saved_chart, ttft_chart
from semantic_kv.report.formats import change, milliseconds, percent
from semantic_kv.report.page import page_html
from semantic_kv.report.png import write_pngs
from semantic_kv.report.summary_md import markdown_table, summary_md

SCHEMA: Final = "semantic_kv.results.v1"


def write_study(study: Study, folder: Path, facts: dict[str, str]) -> None:
    verdict = verdict_of(study)
    write_json(folder / "results.json", results_json(study, facts))
    write_text(folder / "metrics.csv", metrics_csv.metrics_csv(study))
    write_text(folder / "summary.md", summary_md(study, verdict))
    write_pngs(study_charts(study), folder)
    write_text(folder / "report.html", page_html([study], study.config.experiment, facts))


def study_charts(study: Study) -> list[Chart]:
    """The six promised plots first, then ours."""
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
        "standings": study.standings_json(),
        "bounds": [_bounds_json(study, place) for place in study.places()] if study.config.bounds else [],
        "curves": curves.to_json() if curves else None,
        "bound_cells": [{"cell": cell_json(c), **figures.to_json()} for c, figures in study.bound_figures.items()],
        "cells": [{"cell": cell_json(cell), **_cell_figures(study, cell)} for cell in study.figures],
    }


def write_aggregate(studies: Sequence[Study], output: Path, facts: dict[str, str]) -> None:
    """aggregate_summary.csv and .md, and one report over all studies."""
    rows = [row for study in studies for row in aggregate_rows(study)]
    write_text(output / "aggregate_summary.csv", metrics_csv.written(COLUMNS, [_flat(asdict(row)) for row in rows]))
    won = [row for row in rows if row.lru_wins]
    lost = [row for row in rows if not row.lru_wins]
    head = f"LRU wins, or is not beaten beyond a tie, in {len(won)} of {len(rows)} settings."
    lines = ["# Aggregate summary", "", f"**{head}** {MODELLED}", ""]
    lines += ["## Where LRU wins", "", *([f"- {row.sentence}" for row in won] or ["- nowhere"]), ""]
    lines += ["## Where it is beaten, and by what", "", *([f"- {row.sentence}" for row in lost] or ["- nowhere"]), ""]
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
    """Without the stretches that intervals are made of; series over time of the first seed only (megabytes)."""
    figures = study.figures[cell].to_json()
    del figures["batches"]
    if cell.seed != study.config.seeds[0] or cell.capacity != study.config.capacities[0]:
        del figures["used_over_time"], figures["weights"]
    return figures


def _bounds_json(study: Study, place: Any) -> dict[str, Any]:
    bounds = study.bounds(place)
    assert bounds is not None
    return {"model": place[0], "capacity": place[1], **asdict(bounds)}


def _ms(value: float | None) -> str:
    return milliseconds(value)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {key: ("yes" if value else "no") if isinstance(value, bool) else value for key, value in row.items()}
