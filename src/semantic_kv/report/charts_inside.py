"""Charts of what happens inside the cache: evictions by label, utilisation, and the weights of an adaptive policy."""

from __future__ import annotations

from typing import Final

from semantic_kv.experiment.config import BASELINE, PolicyChoice
from semantic_kv.experiment.figures import CellFigures, WeightSeries
from semantic_kv.experiment.study import Study
from semantic_kv.report.charts_policy import primary_setting, shown
from semantic_kv.report.formats import percent, tick_count, tick_share
from semantic_kv.report.tones import CYCLE
from sembase.labels import LABELS
from sembase.onepage.chart import Bar, Bars, Chart, Curve, DataTable, Layer, Rule
from sembase.onepage.formats import count
from sembase.onepage.ticks import category_axis, linear_axis

_MAX_CURVES: Final = 6


def evictions_chart(study: Study) -> Chart:
    """Stacked by label, one row per policy; sums over seeds."""
    setting = primary_setting(study)
    rows = shown(study, setting)
    counts = [_evicted(study.cells_at(setting, row.choice)) for row in rows]
    starts = [0] * len(rows)
    layers: list[Layer] = []
    for at, label in enumerate(LABELS):
        bars = []
        for y, row in enumerate(counts):
            if amount := row.get(label, 0):
                bars.append(Bar(y, starts[y] + amount, "", f"{rows[y].name}: {amount:,} of {label}", start=starts[y]))
                starts[y] += amount
        if bars:
            layers.append(Bars(label, CYCLE[at], tuple(bars)))
    names = [label for label in LABELS if any(label in row for row in counts)]
    most = max(range(len(rows)), key=lambda y: starts[y])
    return Chart(
        "evictions_by_semantic_type",
        "What is evicted",
        f"{rows[most].name} evicts most: {starts[most]:,} blocks. Few evictions mean little if few were admitted.",
        linear_axis("evicted blocks", 0.0, max(1.0, *map(float, starts)), tick_count),
        category_axis([row.name for row in rows], [BASELINE], dense=True),
        tuple(layers),
        DataTable(
            ("policy", *names, "all"),
            tuple(
                (row.name, *(count(counts[y].get(name, 0)) for name in names), count(starts[y]))
                for y, row in enumerate(rows)
            ),
        ),
    )


def utilization_chart(study: Study) -> Chart:
    """First seed. LRU, the best others and the last: a cache that stays empty rejects too much."""
    setting = primary_setting(study)
    rows = shown(study, setting)
    first = (study.baseline(setting), *rows[: _MAX_CURVES - 2], rows[-1])
    chosen = rows if len(rows) <= _MAX_CURVES else tuple(dict.fromkeys(first))
    layers: list[Layer] = []
    table = []
    for tone, row in zip(CYCLE, chosen, strict=False):
        series = study.cells_at(setting, row.choice)[0].used_over_time
        points = tuple((float(request), used / row.capacity) for request, used in series)
        if points:
            layers.append(Curve(row.name, tone, points))
            table.append((row.name, percent(points[len(points) // 2][1]), percent(points[-1][1])))
    last = max((layer.points[-1][0] for layer in layers if isinstance(layer, Curve)), default=1.0)
    return Chart(
        "memory_utilization_over_time",
        "Cache utilisation",
        f"Fraction of the capacity in use after each request, first seed; {len(chosen)} of {len(rows)} policies shown.",
        linear_axis("request", 0.0, last, tick_count),
        linear_axis("used / capacity", 0.0, 1.0, tick_share),
        tuple(layers),
        DataTable(("policy", "halfway", "at the end"), tuple(table)),
    )


def weights_chart(study: Study) -> Chart:
    """The first policy that learns weights. Without one the chart says so, because its file name is fixed."""
    found = _learned(study)
    if found is None:
        return Chart(
            "adaptive_weights_over_time",
            "Weights of the adaptive policy",
            "No policy in this study learns weights per label.",
            linear_axis("request", 0.0, 1.0, tick_count),
            linear_axis("weight", 0.0, 1.0, lambda value: f"{value:g}"),
            (),
            DataTable(("label",), ()),
        )
    choice, series = found
    columns = list(zip(*series.weights, strict=True))
    used = {label.label for label in study.cells_at(primary_setting(study), choice)[0].labels}
    lines = [(i, label) for i, label in enumerate(series.labels) if label in used]
    layers: tuple[Layer, ...] = tuple(
        Curve(label, CYCLE[i], tuple(zip(map(float, series.requests), columns[i], strict=True))) for i, label in lines
    )
    top = max(max(columns[i]) for i, _ in lines)
    return Chart(
        "adaptive_weights_over_time",
        f"Weights learned by {choice.evict}",
        ", ".join(f"{label} {columns[i][0]:.2f} to {columns[i][-1]:.2f}" for i, label in lines) + " (first seed).",
        linear_axis("request", 0.0, float(series.requests[-1]), tick_count),
        linear_axis("weight", 0.0, top, lambda value: f"{value:g}"),
        (*layers, Rule(5.0, "cap", dashed=True)) if top >= 5.0 else layers,
        DataTable(
            ("label", "first", "last"),
            tuple((label, f"{columns[i][0]:.3f}", f"{columns[i][-1]:.3f}") for i, label in lines),
        ),
    )


def _learned(study: Study) -> tuple[PolicyChoice, WeightSeries] | None:
    setting = primary_setting(study)
    for choice in study.config.choices():
        series = study.cells_at(setting, choice)[0].weights
        if series is not None and len(series.requests) > 1:
            return choice, series
    return None


def _evicted(cells: tuple[CellFigures, ...]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for cell in cells:
        for label in cell.labels:
            sums[label.label] = sums.get(label.label, 0) + label.evicted
    return {label: amount for label, amount in sums.items() if amount}
