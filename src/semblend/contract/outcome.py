"""The outcomes of a request and the reasons for a decline, shared by planner, adapters, router and bench."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    EXACT_PREFIX = "exact_prefix"
    SEMANTIC_DISCOVERY_ONLY = "semantic_discovery_only"
    SEMANTIC_PLACEMENT = "semantic_placement"
    BACKEND_MATERIALIZED_REUSE = "backend_materialized_reuse"
    BACKEND_DECLINED_REUSE = "backend_declined_reuse"
    COLD_FALLBACK = "cold_fallback"


class DeclineReason(StrEnum):
    """Why nothing is reused. A closed set: adding a reason changes the contract."""

    DISABLED = "disabled"
    NAMESPACE_UNKNOWN = "namespace_unknown"
    PROMPT_TOO_SHORT = "prompt_too_short"
    EXACT_PREFIX_COVERS = "exact_prefix_covers"
    NO_CANDIDATE = "no_candidate"
    NOT_TOKEN_IDENTICAL = "not_token_identical"
    DISCOVERY_ONLY = "discovery_only"
    BELOW_MIN_REUSE_RATIO = "below_min_reuse_ratio"
    CONTEXT_RISK = "context_risk"
    NOT_WORTH = "not_worth"  # it would take longer than the prefill it saves
    TOO_FEW_INEXACT = "too_few_inexact"  # fewer tokens after differing context than min_inexact_tokens
    # The guard found that answers of this class drift from cold answers; see ``semblend.guard``.
    GUARD_OFF_NEW_INSTRUCTION = "guard_off:new_instruction"
    GUARD_OFF_EDIT = "guard_off:edit"
    GUARD_OFF_REORDER = "guard_off:reorder"
    GUARD_OFF_COMPOSITION = "guard_off:composition"
    # Reasons only a backend can give.
    STALE = "stale"
    NAMESPACE_MISMATCH = "namespace_mismatch"
    CAPACITY = "capacity"
    UNSUPPORTED_MODE = "unsupported_mode"
    VALIDATION_FAILURE = "validation_failure"
    QUALITY_GATE = "quality_gate"  # the class lost answers, or time, when it was measured
    DONOR_REFRESH = "donor_refresh"  # served cold so that its content becomes a donor
    INTERNAL_ERROR = "internal_error"


DISCOVERY_REASONS = frozenset({DeclineReason.NOT_TOKEN_IDENTICAL, DeclineReason.DISCOVERY_ONLY})


class Evidence(StrEnum):
    """How a figure was obtained. Printed with every number."""

    MEASURED_LIVE = "measured_live"
    BACKEND_CONFIRMED = "backend_confirmed"
    OFFLINE = "offline"
    SIMULATED = "simulated"
