"""Which gates were requested, and how to judge them. None and a false ``require_*`` mean not requested."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

MAX_LOST_PAIR_RATE: Final = 0.05
_MODIFIERS: Final = frozenset({"allow_missing", "judge_interval", "min_n"})


@dataclass(frozen=True, slots=True)
class GateRequest:
    """Two limits apply even if not requested: ``max_negative_control_confirmed_rate`` is 0.0 if the metric exists, and
    the rates of failed and contaminated pairs are ``MAX_LOST_PAIR_RATE`` if there are pairs.

    ``judge_interval`` compares the unfavourable end of a speedup's 95 % interval with the limit, not the median.
    ``min_n`` is the minimum number of requests behind a gated rate, median or mean.
    """

    min_quality_pass_rate: float | None = None
    min_semantic_placement_rate: float | None = None
    min_backend_confirmed_block_rate: float | None = None
    min_semantic_eligible_lift: float | None = None
    min_any_position_token_rate: float | None = None
    min_materialization_events: int | None = None
    min_materialized_tokens: int | None = None
    min_materialized_units: int | None = None
    max_negative_control_confirmed_rate: float | None = None
    require_materialized_reuse: bool = False
    require_joined_evidence: bool = False
    require_no_engine_errors: bool = False
    min_blended_ttft_speedup: float | None = None
    max_negative_control_speedup_deviation: float | None = None
    max_cold_arm_overhead: float | None = None
    max_failed_pair_rate: float | None = None
    max_contaminated_pair_rate: float | None = None
    require_contamination_check: bool = False
    max_warm_vs_cold_kl: float | None = None
    max_worst_kl: float | None = None
    max_answer_flip_rate: float | None = None
    min_identical_text_rate: float | None = None
    max_answer_flips_beyond_floor: int | None = None
    max_stale_answers_beyond_floor: int | None = None
    max_answer_score_loss: float | None = None
    allow_missing: bool = False
    judge_interval: bool = False
    min_n: int = 1

    def requested(self) -> dict[str, Any]:
        """Requested gates by name. A limit of 0 is a request; ``False`` and ``None`` are not."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _MODIFIERS}
        return {name: value for name, value in values.items() if value is not None and value is not False}
