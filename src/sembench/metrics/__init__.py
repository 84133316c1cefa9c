"""Metrics by family, declared and found by name. Aggregates are functions of rows and of nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sembase.registry import Registry
from sembench.metrics.base import Metric
from sembench.metrics.live import LIVE_METRICS
from sembench.metrics.negative_control import NEGATIVE_CONTROL_METRICS
from sembench.metrics.planning import PLANNING_METRICS
from sembench.metrics.reuse import REUSE_METRICS
from sembench.metrics.rows import RequestRow

METRICS: Final[Registry[Metric]] = Registry("metric", group="sembench.metrics")

_BUILT_IN: Final = (*PLANNING_METRICS, *REUSE_METRICS, *LIVE_METRICS, *NEGATIVE_CONTROL_METRICS)
ORDER: Final = tuple(metric.name for metric in _BUILT_IN)
"""The order in which metrics are written and documented."""

for _metric in _BUILT_IN:
    METRICS.register(_metric.name, _metric)


def metric_names() -> tuple[str, ...]:
    """Built-in metrics in their order, then those of third parties."""
    return (*ORDER, *(name for name in METRICS.names() if name not in ORDER))


def aggregate(rows: Sequence[RequestRow]) -> dict[str, Any]:
    """Every metric's value by name; ``parts`` holds numerator, denominator, n, unit and kind of evidence."""
    values: dict[str, Any] = {"requests": len(rows)}
    parts: dict[str, Any] = {}
    for name in metric_names():
        metric = METRICS.get(name)
        figure = metric.measure(rows)
        values[name] = None if figure is None else figure.value
        parts[name] = {
            "numerator": None if figure is None else figure.numerator,
            "denominator": None if figure is None else figure.denominator,
            "n": None if figure is None else figure.n,
            "unit": metric.unit,
            "evidence": str(metric.evidence) if figure is not None else None,
        }
    return {
        **values,
        "decline_reasons": _counted(row.plan.decline_reason for row in rows if row.plan),
        "backend_outcomes": _counted(row.backend.outcome for row in rows if row.backend),
        "backend_decline_reasons": _counted(row.backend.decline_reason for row in rows if row.backend),
        "parts": parts,
    }


def _counted(names: Iterable[str | None]) -> dict[str, int]:
    return dict(sorted(Counter(name for name in names if name is not None).items()))


def aggregate_by_transform(rows: Sequence[RequestRow]) -> dict[str, dict[str, Any]]:
    transforms = dict.fromkeys(row.transform for row in rows)
    return {name: aggregate([row for row in rows if row.transform == name]) for name in transforms}


def reference_table() -> str:
    """The table of docs/METRICS.md."""
    columns = ("metric", "unit", "formula", "needs", "evidence", "better", "shown only with")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name in ORDER:
        metric = METRICS.get(name)
        beside = f"`{metric.companion}`" if metric.companion else ""
        needs = ", ".join(metric.needs)
        cells = (f"`{name}`", metric.unit, metric.formula, needs, metric.evidence, metric.better, beside)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
