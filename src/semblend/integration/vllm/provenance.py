"""What the scheduler half knows of one request, and the provenance a client finds in ``kv_transfer_params``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from semblend.contract import (
    Decline,
    DeclineReason,
    Discovery,
    Evidence,
    Namespace,
    Outcome,
    ReusePlan,
    Run,
)
from semblend.integration.claims import fidelity_of
from semblend.integration.hints import KEY, Hints, read_hints

if TYPE_CHECKING:
    from vllm.v1.request import Request

MAX_RUNS_SHOWN: Final = 64

__all__ = ["KEY", "MAX_RUNS_SHOWN", "Hints", "RequestRecord", "provenance", "read_hints"]


@dataclass(slots=True)
class RequestRecord:
    """One request between its arrival and its end. ``plan`` and ``decline`` are the answer to the last look-up."""

    request: Request
    tokens: NDArray[np.uint32]
    namespace: Namespace
    hints: Hints
    exact_prefix_tokens: int = 0
    asked_at: tuple[int, int] | None = None  # the boundary and the state of the donors the answer holds for
    plan: ReusePlan | None = None
    decline: Decline | None = None
    exact_tokens: int = 0  # up to here the KV of the plan is that of cold prefill
    due: tuple[str, ...] = ()  # passages for whose sake it is served cold
    outputs_at_order: int = 0
    is_allocated: bool = False  # the engine has given it blocks at least once
    is_ordered: bool = False  # the engine took the claim and the workers got the order
    is_confirmed: bool = False  # the workers reported the load
    runs: tuple[Run, ...] = ()  # as ordered
    computed_tokens: int = 0
    chosen_tokens: int = 0  # of the runs, computed after all: at most so many until the workers report
    selected_by: str | None = None  # the policy that chose them, as the workers report it
    fault: str = ""
    donor_id: str | None = None
    discoveries: tuple[Discovery, ...] = ()
    text: str | None = None  # set by the decoder's thread
    arrived_s: float = field(default_factory=time.monotonic)

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def is_plain(self) -> bool:
        """Tokens and nothing else: no images, no embeddings."""
        return len(self.tokens) > 0 and not self.request.mm_features and self.request.prompt_embeds is None

    @property
    def reused_tokens(self) -> int:
        return sum(run.length for run in self.runs) - self.chosen_tokens

    @property
    def blend_generation(self) -> int:
        """0: all its KV is that of cold prefill. 1: some was loaded from another context."""
        return int(self.is_blended and self.exact_tokens < len(self.tokens))

    @property
    def is_blended(self) -> bool:
        return self.is_ordered and not self.fault


def provenance(record: RequestRecord, *, answered: bool, select: str) -> dict[str, Any]:
    """``answered``: the request produced tokens, so a load it was given cannot have failed unnoticed. ``select`` is the
    deployment's policy."""
    confirmed = record.is_blended and (record.is_confirmed or answered)
    outcome, reason, detail = _verdict(record, confirmed)
    runs = record.runs if confirmed else ()
    return {
        KEY: {
            "outcome": outcome.value,
            "reason": reason,
            "detail": detail,
            "evidence": Evidence.BACKEND_CONFIRMED.value if confirmed else Evidence.MEASURED_LIVE.value,
            "prompt_tokens": len(record.tokens),
            "exact_prefix_tokens": record.exact_prefix_tokens,
            "reused_tokens": record.reused_tokens if confirmed else 0,
            "computed_tokens": record.computed_tokens if confirmed else 0,
            **fidelity_of(record.plan, runs, record.selected_by, select),
            "runs": [
                {
                    "donor_id": run.donor_id,
                    "donor_start": run.donor_start,
                    "target_start": run.target_start,
                    "length": run.length,
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
    }


def _verdict(record: RequestRecord, confirmed: bool) -> tuple[Outcome, str | None, str]:
    if confirmed:
        return Outcome.BACKEND_MATERIALIZED_REUSE, None, ""
    if record.fault:
        return Outcome.BACKEND_DECLINED_REUSE, DeclineReason.INTERNAL_ERROR.value, record.fault
    if record.plan is not None:
        detail = "ended before the load was confirmed" if record.is_ordered else "planned, but never scheduled"
        return Outcome.BACKEND_DECLINED_REUSE, DeclineReason.CAPACITY.value, detail
    decline = record.decline
    reason = decline.reason.value if decline is not None else None
    detail = decline.detail if decline is not None else ""
    if record.discoveries:
        return Outcome.SEMANTIC_DISCOVERY_ONLY, reason, detail
    if record.exact_prefix_tokens:
        return Outcome.EXACT_PREFIX, reason, detail
    return Outcome.COLD_FALLBACK, reason, detail
