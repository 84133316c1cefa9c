"""What a client learns about its own request, the same for every engine: the outcome, why, and what was reused.

vLLM returns it in ``kv_transfer_params``, SGLang in ``meta_info``; both under the key ``semblend``.
"""

from __future__ import annotations

from typing import Any, Final

from semblend.contract import DeclineReason, Evidence, Outcome
from semblend.integration.claims import fidelity_of
from semblend.integration.core.request_record import RequestRecord

MAX_RUNS_SHOWN: Final = 64


def provenance(record: RequestRecord, *, is_confirmed: bool) -> dict[str, Any]:
    """``is_confirmed``: the backend reported that it holds the claimed KV, reused or computed.

    Only confirmed runs count as reuse; a claim without runs was computed and reuses nothing.
    """
    is_reused = is_confirmed and bool(record.runs)
    outcome, reason, detail = _verdict(record, is_reused)
    runs = record.runs if is_reused else ()
    return {
        "outcome": outcome.value,
        "reason": reason,
        "detail": detail,
        "evidence": Evidence.BACKEND_CONFIRMED.value if is_reused else Evidence.MEASURED_LIVE.value,
        "prompt_tokens": len(record.tokens),
        "exact_prefix_tokens": record.exact_prefix_tokens,
        "reused_tokens": record.reused_tokens if is_reused else 0,
        "computed_tokens": record.computed_tokens if is_confirmed else 0,
        **fidelity_of(record.plan, runs, record.selected_by),
        "runs": [
            {
                "donor_id": run.donor_id,
                "donor_start": run.donor_start,
                "target_start": run.target_start,
                "length": run.length,
                "context_risk": run.risk.mean_share,
            }
            for run in runs[:MAX_RUNS_SHOWN]
        ],
        "runs_omitted": max(0, len(runs) - MAX_RUNS_SHOWN),
        "discoveries": [
            {"donor_id": found.donor_id, "similarity": found.similarity, "source": found.source}
            for found in record.discoveries
        ],
        "donor_id": record.donor_id,
        "blend_generation": record.blend_generation,
    }


def _verdict(record: RequestRecord, is_reused: bool) -> tuple[Outcome, str | None, str]:
    if is_reused:
        return Outcome.BACKEND_MATERIALIZED_REUSE, None, ""
    if (declined := record.backend_decline) is not None:
        return Outcome.BACKEND_DECLINED_REUSE, declined.reason.value, declined.detail
    if record.plan is not None:
        if not record.is_accepted:
            return Outcome.BACKEND_DECLINED_REUSE, DeclineReason.CAPACITY.value, "planned, but never scheduled"
        if record.is_confirmed:
            return Outcome.BACKEND_DECLINED_REUSE, DeclineReason.DISABLED.value, "the engine computed the whole claim"
        return Outcome.BACKEND_DECLINED_REUSE, DeclineReason.CAPACITY.value, "ended before the load was confirmed"
    decline = record.decline
    reason = decline.reason.value if decline is not None else None
    detail = decline.detail if decline is not None else ""
    if record.discoveries:
        return Outcome.SEMANTIC_DISCOVERY_ONLY, reason, detail
    if record.exact_prefix_tokens:
        return Outcome.EXACT_PREFIX, reason, detail
    return Outcome.COLD_FALLBACK, reason, detail
