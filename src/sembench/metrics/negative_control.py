"""Metrics over negative controls alone: rows whose donors must yield nothing (unrelated text, another tenant)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sembench.metrics.base import Figure, Metric, Needs
from sembench.metrics.live import LIVE_METRICS
from sembench.metrics.planning import PLANNING_METRICS
from sembench.metrics.reuse import REUSE_METRICS
from sembench.metrics.rows import RequestRow
from semblend.contract import Evidence

_METRICS: Final = {metric.name: metric for metric in (*PLANNING_METRICS, *REUSE_METRICS, *LIVE_METRICS)}


def _of_negatives(metric_name: str, name: str) -> Metric:
    metric = _METRICS[metric_name]

    def measure(rows: Sequence[RequestRow]) -> Figure | None:
        return metric.measure([row for row in rows if row.negative_control])

    formula = f"{metric_name} over negative controls only"
    return replace(metric, name=name, formula=formula, better="lower", measure=measure)


NEGATIVE_CONTROL_METRICS: Final = (
    Metric(
        name="negative_control_count",
        unit="requests",
        formula="number of negative controls",
        needs=(Needs.TOKENS,),
        evidence=Evidence.OFFLINE,
        better="neither",
        measure=lambda rows: Figure(sum(row.negative_control for row in rows)),
    ),
    _of_negatives("exact_block_hit_rate", "negative_control_exact_block_hit_rate"),
    _of_negatives("any_position_token_rate", "negative_control_any_position_token_rate"),
    _of_negatives("semantic_candidate_block_rate", "negative_control_semantic_candidate_block_rate"),
    _of_negatives("semantic_eligible_block_rate", "negative_control_semantic_eligible_block_rate"),
    _of_negatives("discovery_rate_by_request", "negative_control_discovery_rate"),
    _of_negatives("backend_confirmed_block_rate", "negative_control_backend_confirmed_rate"),
    _of_negatives("confirmed_reuse_rate_by_request", "negative_control_confirmed_reuse_rate"),
    _of_negatives("semantic_placement_rate_by_request", "negative_control_semantic_placement_rate"),
)
