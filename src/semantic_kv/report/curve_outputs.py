"""A study's curves -> miss_ratio_curve.{json,csv,png}, report.html, and a table for the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from semantic_kv.experiment.curves import Curves, curves_of
from semantic_kv.experiment.files import write_json, write_text
from semantic_kv.experiment.study import Study
from semantic_kv.report.charts_curve import curve_chart, sampling_chart, sampling_table
from semantic_kv.report.metrics_csv import Value, written
from semantic_kv.report.outputs import results_json
from semantic_kv.report.page import page_html
from semantic_kv.report.png import write_pngs


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
    """Capacities down, policies and bounds across: miss ratios; then the errors of the samples."""
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
    assert found is not None  # asked for by the command
    return found
