"""Every gate, once: its figure, relation, unit and help. Flags, requests and reports are made from this table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from sembase.values import amount, count, fraction

MAX_LOST_PAIR_RATE: Final = 0.05
_JOINED: Final = "counted over loads that an engine summary lists for requests of this result"


class Relation(Enum):
    """How a figure relates to its limit. The value is how the limit is written."""

    AT_LEAST = "at least {}"
    AT_MOST = "at most {}"
    NEAR_ONE = "within {} of 1"
    REQUIRED = "required"


class Unit(Enum):
    """The value shows in the help; ``parse`` reads it from the command line."""

    FRACTION = "FRACTION"
    COUNT = "N"
    RATIO = "RATIO"
    NATS = "NATS"

    @property
    def parse(self) -> Callable[[str], float]:
        return fraction if self is Unit.FRACTION else count if self is Unit.COUNT else amount


@dataclass(frozen=True, slots=True)
class Gate:
    """``words`` name the figure in tables for people. ``always_on`` is the limit of a gate that was not requested."""

    name: str
    figure: str
    relation: Relation
    unit: Unit | None
    help: str
    words: str = ""
    always_on: float | None = None

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    def wanted(self, limit: float) -> str:
        return self.relation.value.format(limit)

    def holds(self, value: float, limit: float) -> bool:
        match self.relation:
            case Relation.AT_LEAST:
                return value >= limit
            case Relation.AT_MOST:
                return value <= limit
        return abs(value - 1.0) <= limit

    def unfavourable(self, interval: tuple[float, float]) -> float:
        """The end of an interval that is nearer to failing."""
        match self.relation:
            case Relation.AT_LEAST:
                return min(interval)
            case Relation.AT_MOST:
                return max(interval)
        return max(interval, key=lambda end: abs(end - 1.0))


_LEAST, _MOST, _REQUIRED = Relation.AT_LEAST, Relation.AT_MOST, Relation.REQUIRED

AGGREGATE: Final = (
    Gate(
        "min_quality_pass_rate",
        "quality_pass_rate",
        _LEAST,
        Unit.FRACTION,
        "answers that keep their quality, over all and over reusing requests",
        "answers that pass the quality check",
    ),
    Gate(
        "min_semantic_placement_rate",
        "semantic_placement_rate_by_request",
        _LEAST,
        Unit.FRACTION,
        "requests placed by similarity",
        "requests placed by semantic similarity",
    ),
    Gate(
        "min_backend_confirmed_block_rate",
        "backend_confirmed_block_rate",
        _LEAST,
        Unit.FRACTION,
        "blocks the backend confirmed",
        "blocks the backend confirmed as reused",
    ),
    Gate(
        "min_semantic_eligible_lift",
        "semantic_eligible_lift",
        _LEAST,
        Unit.FRACTION,
        "eligible blocks beyond exact ones (a plan)",
        "eligible blocks beyond exact ones (a plan)",
    ),
    Gate(
        "min_any_position_token_rate",
        "any_position_token_rate",
        _LEAST,
        Unit.FRACTION,
        "tokens seen before at any position",
        "tokens seen before, at any position",
    ),
)
LOADS: Final = tuple(
    Gate(f"min_{figure}", figure, _LEAST, Unit.COUNT, _JOINED)
    for figure in ("materialization_events", "materialized_tokens", "materialized_units")
)
_PAIRS_AT_LEAST: Final = (
    Gate(
        "min_blended_ttft_speedup",
        "blended_ttft_speedup_median",
        _LEAST,
        Unit.RATIO,
        "median over all clean pairs, not only hits; requires confirmed reuse and no speedup without it",
        "blended TTFT speedup, median of all clean pairs",
    ),
    Gate(
        "min_identical_text_rate",
        "identical_text_rate",
        _LEAST,
        Unit.FRACTION,
        "warm answers identical to the cold ones",
        "warm answers identical to the cold ones",
    ),
)
_CONTROLS: Final = (
    Gate(
        "max_negative_control_confirmed_rate",
        "negative_control_backend_confirmed_rate",
        _MOST,
        Unit.FRACTION,
        "always on when measured (default: 0.0)",
        "blocks of negative controls the backend confirmed",
        always_on=0.0,
    ),
    Gate(
        "max_negative_control_speedup_deviation",
        "negative_control_ttft_speedup_median",
        Relation.NEAR_ONE,
        Unit.RATIO,
        "maximum distance of the negative controls' median speedup from 1, in either direction",
        "negative controls' TTFT speedup, median",
    ),
)
_LOST: Final = (
    Gate(
        "max_failed_pair_rate",
        "failed_pair_rate",
        _MOST,
        Unit.FRACTION,
        f"pairs with a failed arm; always on (default: {MAX_LOST_PAIR_RATE})",
        "pairs with a failed arm",
        always_on=MAX_LOST_PAIR_RATE,
    ),
    Gate(
        "max_contaminated_pair_rate",
        "contaminated_pair_rate",
        _MOST,
        Unit.FRACTION,
        f"pairs whose cold arm was not cold; always on (default: {MAX_LOST_PAIR_RATE})",
        "pairs whose cold arm was not cold",
        always_on=MAX_LOST_PAIR_RATE,
    ),
    Gate(
        "max_cold_arm_overhead",
        "cold_arm_overhead_median",
        _MOST,
        Unit.RATIO,
        "median cold TTFT over that of --stock-result, on common items",
        "cold TTFT relative to a stock engine, median",
    ),
)
_ANSWERS: Final = (
    Gate(
        "max_warm_vs_cold_kl",
        "warm_vs_cold_mean_kl_topk",
        _MOST,
        Unit.NATS,
        "mean KL over the union of top-k log-probabilities, over all, over reusing pairs and of each transform",
        "mean KL, warm against cold",
    ),
    Gate(
        "max_worst_kl",
        "warm_vs_cold_worst_kl_topk",
        _MOST,
        Unit.NATS,
        "the same KL at the worst position of any pair",
        "KL at the worst position",
    ),
    Gate(
        "max_answer_flip_rate",
        "answer_flip_rate",
        _MOST,
        Unit.FRACTION,
        "answers that changed, over all and over reusing pairs",
        "answers that flipped",
    ),
    Gate(
        "max_answer_flips_beyond_floor",
        "answer_flips_beyond_floor",
        _MOST,
        Unit.COUNT,
        "right cold answers that are wrong with reuse and right in --floor-result; without one every flip counts",
        "right cold answers that are wrong with reuse, beyond the floor",
    ),
    Gate(
        "max_stale_answers_beyond_floor",
        "stale_answers_beyond_floor",
        _MOST,
        Unit.COUNT,
        "of these, answers of an earlier revision of the document (field_edit)",
        "answers of an earlier revision, beyond the floor",
    ),
    Gate(
        "max_answer_score_loss",
        "answer_score_loss_of_worst_class",
        _MOST,
        Unit.FRACTION,
        "mean score lost against cold by the worst class of dataset and transform",
        "mean loss of score of the worst class",
    ),
)
_SWITCHES: Final = (
    Gate(
        "require_materialized_reuse",
        "joined_requests",
        _REQUIRED,
        None,
        "at least one request of this live result has a semantic hit and a materialization; implies "
        "--require-joined-evidence",
        "requests with a semantic hit and a materialization",
    ),
    Gate(
        "require_joined_evidence",
        "joined_reuse_share",
        _REQUIRED,
        None,
        "every confirmed reuse in the rows has a materialization of the same request in an engine summary, and "
        "the backend reported on every negative control",
    ),
    Gate(
        "require_no_engine_errors",
        "errors",
        _REQUIRED,
        None,
        "no error line in any engine summary",
        "error lines in the engine's log",
    ),
    Gate(
        "require_contamination_check",
        "contamination_checked_pairs",
        _REQUIRED,
        None,
        "every cold arm checked, contaminated pairs excluded",
        "pairs whose cold arm was checked",
    ),
)
GATES: Final = (*AGGREGATE, *LOADS, *_PAIRS_AT_LEAST, *_CONTROLS, *_LOST, *_ANSWERS, *_SWITCHES)
BY_NAME: Final = {gate.name: gate for gate in GATES}
