"""Metrics: one file each, declared and found by name. Aggregates are functions of rows and of nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from sembench.metrics.base import Metric
from sembench.metrics.rows import RequestRow
from semblend.registry import Registry

METRICS: Final[Registry[Metric]] = Registry("metric", group="sembench.metrics")

ORDER: Final = (
    "total_blocks",
    "prompt_tokens",
    "exact_block_hit_rate",
    "exact_prefix_block_rate",
    "any_position_token_rate",
    "semantic_candidate_block_rate",
    "semantic_eligible_block_rate",
    "semantic_eligible_lift",
    "beyond_prefix_planned_token_rate",
    "plan_rate_by_request",
    "discovery_rate_by_request",
    "mean_context_share",
    "unverified_planned_token_rate",
    "changed_token_planned_rate",
    "semantic_path_extra_candidate_blocks",
    "semantic_path_extra_eligible_blocks",
    "semantic_path_extra_discoveries",
    "plan_latency_ms_p50",
    "plan_latency_ms_p99",
    "backend_confirmed_block_rate",
    "backend_confirmed_lift",
    "semantic_placement_rate_by_request",
    "quality_pass_rate",
    "negative_control_count",
    "negative_control_exact_block_hit_rate",
    "negative_control_any_position_token_rate",
    "negative_control_semantic_candidate_block_rate",
    "negative_control_semantic_eligible_block_rate",
    "negative_control_discovery_rate",
    "negative_control_backend_confirmed_rate",
    "negative_control_semantic_placement_rate",
)
"""The order in which metrics are written and documented."""

_NEGATIVE: Final = {
    "negative_control_count": "COUNT",
    "negative_control_exact_block_hit_rate": "EXACT_BLOCKS",
    "negative_control_any_position_token_rate": "ANY_POSITION_TOKENS",
    "negative_control_semantic_candidate_block_rate": "CANDIDATE_BLOCKS",
    "negative_control_semantic_eligible_block_rate": "ELIGIBLE_BLOCKS",
    "negative_control_discovery_rate": "DISCOVERIES",
    "negative_control_backend_confirmed_rate": "CONFIRMED_BLOCKS",
    "negative_control_semantic_placement_rate": "PLACEMENTS",
}

for _name in ORDER:
    _home = f"negative_control:{_NEGATIVE[_name]}" if _name in _NEGATIVE else f"{_name}:METRIC"
    METRICS.register(_name, f"sembench.metrics.{_home}")


def metric_names() -> tuple[str, ...]:
    """Our own in their order, then those of third parties."""
    return (*ORDER, *(name for name in METRICS.names() if name not in ORDER))


def aggregate(rows: Sequence[RequestRow]) -> dict[str, Any]:
    """Every metric's value by name, and under ``parts`` what it was made of and what kind of evidence that is."""
    values: dict[str, Any] = {"requests": len(rows)}
    parts: dict[str, Any] = {}
    for name in metric_names():
        metric = METRICS.get(name)
        figure = metric.measure(rows)
        values[name] = None if figure is None else figure.value
        parts[name] = {
            "numerator": None if figure is None else figure.numerator,
            "denominator": None if figure is None else figure.denominator,
            "unit": metric.unit,
            "evidence": str(metric.evidence) if figure is not None else None,
        }
    declined = Counter(row.plan.decline_reason for row in rows if row.plan and row.plan.decline_reason)
    return {**values, "decline_reasons": dict(sorted(declined.items())), "parts": parts}


def aggregate_by_transform(rows: Sequence[RequestRow]) -> dict[str, dict[str, Any]]:
    transforms = dict.fromkeys(row.transform for row in rows)
    return {name: aggregate([row for row in rows if row.transform == name]) for name in transforms}


def reference_table() -> str:
    """The table of docs/METRICS.md."""
    lines = ["| metric | unit | formula | needs | evidence | better |", "|---|---|---|---|---|---|"]
    for name in ORDER:
        metric = METRICS.get(name)
        needs = ", ".join(metric.needs)
        lines.append(f"| `{name}` | {metric.unit} | {metric.formula} | {needs} | {metric.evidence} | {metric.better} |")
    return "\n".join(lines) + "\n"
