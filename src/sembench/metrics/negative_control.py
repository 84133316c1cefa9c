"""The same metrics over negative controls alone: rows whose donors must give nothing (unrelated text, other tenant)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sembench.metrics.any_position_token_rate import METRIC as ANY_POSITION
from sembench.metrics.backend_confirmed_block_rate import METRIC as CONFIRMED
from sembench.metrics.base import Figure, Metric, Needs
from sembench.metrics.confirmed_reuse_rate_by_request import METRIC as REUSE
from sembench.metrics.discovery_rate_by_request import METRIC as DISCOVERY
from sembench.metrics.exact_block_hit_rate import METRIC as EXACT
from sembench.metrics.rows import RequestRow
from sembench.metrics.semantic_candidate_block_rate import METRIC as CANDIDATE
from sembench.metrics.semantic_eligible_block_rate import METRIC as ELIGIBLE
from sembench.metrics.semantic_placement_rate_by_request import METRIC as PLACEMENT
from semblend.contract import Evidence


def _over_negatives(metric: Metric, name: str) -> Metric:
    def measure(rows: Sequence[RequestRow]) -> Figure | None:
        return metric.measure([row for row in rows if row.negative_control])

    return replace(
        metric, name=name, formula=f"{metric.name} over negative controls only", better="lower", measure=measure
    )


COUNT: Final = Metric(
    name="negative_control_count",
    unit="requests",
    formula="number of negative controls",
    needs=(Needs.TOKENS,),
    evidence=Evidence.OFFLINE,
    better="neither",
    measure=lambda rows: Figure(sum(row.negative_control for row in rows)),
)
EXACT_BLOCKS: Final = _over_negatives(EXACT, "negative_control_exact_block_hit_rate")
ANY_POSITION_TOKENS: Final = _over_negatives(ANY_POSITION, "negative_control_any_position_token_rate")
CANDIDATE_BLOCKS: Final = _over_negatives(CANDIDATE, "negative_control_semantic_candidate_block_rate")
ELIGIBLE_BLOCKS: Final = _over_negatives(ELIGIBLE, "negative_control_semantic_eligible_block_rate")
CONFIRMED_BLOCKS: Final = _over_negatives(CONFIRMED, "negative_control_backend_confirmed_rate")
DISCOVERIES: Final = _over_negatives(DISCOVERY, "negative_control_discovery_rate")
PLACEMENTS: Final = _over_negatives(PLACEMENT, "negative_control_semantic_placement_rate")
REUSED_REQUESTS: Final = _over_negatives(REUSE, "negative_control_confirmed_reuse_rate")
