"""Metrics: one file each, declared and found by name. Aggregates are functions of rows and of nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sembase.registry import Registry
from sembench.metrics.base import Metric
from sembench.metrics.rows import RequestRow

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
    "confirmed_reuse_rate_by_request",
    "confirmed_reused_token_rate",
    "boundary_alignment_rate",
    "materialized_reuse_rate",
    "materialized_reuse_token_rate",
    "propagation_contamination_rate",
    "semantic_placement_rate_by_request",
    "failed_request_rate",
    "contaminated_cold_arm_rate",
    "cold_ttft_ms_p50",
    "cold_ttft_ms_p95",
    "cold_ttft_ms_p99",
    "warm_ttft_ms_p50",
    "warm_ttft_ms_p95",
    "warm_ttft_ms_p99",
    "blended_ttft_speedup_median",
    "hit_only_ttft_speedup_median",
    "quality_pass_rate",
    "reused_quality_pass_rate",
    "cold_token_recall",
    "cold_f1",
    "cold_rouge_l",
    "cold_exact_match",
    "warm_token_recall",
    "warm_f1",
    "warm_rouge_l",
    "warm_exact_match",
    "answer_flip_rate",
    "reused_answer_flip_rate",
    "negative_control_count",
    "negative_control_exact_block_hit_rate",
    "negative_control_any_position_token_rate",
    "negative_control_semantic_candidate_block_rate",
    "negative_control_semantic_eligible_block_rate",
    "negative_control_discovery_rate",
    "negative_control_backend_confirmed_rate",
    "negative_control_confirmed_reuse_rate",
    "negative_control_semantic_placement_rate",
)
"""The order in which metrics are written and documented."""

# Metrics that share a file with others of their kind; every other has a file of its own name.
_HOMES: Final = {
    "cold_ttft_ms_p50": "ttft:COLD_P50",
    "cold_ttft_ms_p95": "ttft:COLD_P95",
    "cold_ttft_ms_p99": "ttft:COLD_P99",
    "warm_ttft_ms_p50": "ttft:WARM_P50",
    "warm_ttft_ms_p95": "ttft:WARM_P95",
    "warm_ttft_ms_p99": "ttft:WARM_P99",
    "cold_token_recall": "answer_quality:COLD_TOKEN_RECALL",
    "cold_f1": "answer_quality:COLD_F1",
    "cold_rouge_l": "answer_quality:COLD_ROUGE_L",
    "cold_exact_match": "answer_quality:COLD_EXACT_MATCH",
    "warm_token_recall": "answer_quality:WARM_TOKEN_RECALL",
    "warm_f1": "answer_quality:WARM_F1",
    "warm_rouge_l": "answer_quality:WARM_ROUGE_L",
    "warm_exact_match": "answer_quality:WARM_EXACT_MATCH",
    "answer_flip_rate": "answer_flips:ALL",
    "reused_answer_flip_rate": "answer_flips:REUSED",
    "negative_control_count": "negative_control:COUNT",
    "negative_control_exact_block_hit_rate": "negative_control:EXACT_BLOCKS",
    "negative_control_any_position_token_rate": "negative_control:ANY_POSITION_TOKENS",
    "negative_control_semantic_candidate_block_rate": "negative_control:CANDIDATE_BLOCKS",
    "negative_control_semantic_eligible_block_rate": "negative_control:ELIGIBLE_BLOCKS",
    "negative_control_discovery_rate": "negative_control:DISCOVERIES",
    "negative_control_backend_confirmed_rate": "negative_control:CONFIRMED_BLOCKS",
    "negative_control_confirmed_reuse_rate": "negative_control:REUSED_REQUESTS",
    "negative_control_semantic_placement_rate": "negative_control:PLACEMENTS",
}

for _name in ORDER:
    METRICS.register(_name, f"sembench.metrics.{_HOMES.get(_name, f'{_name}:METRIC')}")


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
    columns = ("metric", "unit", "formula", "needs", "evidence", "better", "never without")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name in ORDER:
        metric = METRICS.get(name)
        beside = f"`{metric.companion}`" if metric.companion else ""
        needs = ", ".join(metric.needs)
        cells = (f"`{name}`", metric.unit, metric.formula, needs, metric.evidence, metric.better, beside)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
