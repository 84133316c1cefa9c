"""Which gates were asked for, and how they are to be judged. None means not asked; a false ``require_*`` likewise."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

MOST_LOST_PAIRS: Final = 0.05
_MANNER: Final = frozenset({"allow_missing", "judge_interval", "min_n"})


@dataclass(frozen=True, slots=True)
class GateRequest:
    """``max_negative_control_confirmed_rate`` is 0.0 and always on when the metric exists, asked for or not; the rates
    of failed and contaminated pairs are ``MOST_LOST_PAIRS`` wherever there are pairs.

    ``judge_interval`` holds the unfavourable end of a speedup's 95 % interval against its limit, not the median.
    ``min_n`` is on how many requests a gated rate, median or mean must rest.
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
    allow_missing: bool = False
    judge_interval: bool = False
    min_n: int = 1

    def requested(self) -> dict[str, Any]:
        """Gates by name, as they were asked for. A limit of 0 was asked for; ``False`` and ``None`` were not."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _MANNER}
        return {name: value for name, value in values.items() if value is not None and value is not False}
