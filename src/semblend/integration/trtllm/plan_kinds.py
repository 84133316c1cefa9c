"""What a plan means to TensorRT-LLM, and where its KV may become visible: invalid pairs cannot be constructed.

A planner's plan and the donors' shared prefixes go in, a ``LoadPlan`` comes out. Called by the leader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from semblend.contract import Decline, DeclineReason, ReusePlan


class PlanKind(StrEnum):
    DISCOVERY_ONLY = "discovery_only"  # found, but not loaded
    EXACT_PREFIX = "exact_prefix"  # KV of the same tokens after the same tokens: equal to cold prefill
    REQUEST_LOCAL_PREFIX = "request_local_prefix"  # of another context, without gaps from the exact prefix on
    REQUEST_LOCAL_SEGMENTED = "request_local_segmented"  # of another context, with gaps to compute


class Publication(StrEnum):
    """Which requests can find the loaded KV afterwards."""

    EXACT_CACHE = "exact_cache"  # all, under the hash of its tokens
    REQUEST_LOCAL = "request_local"  # only the request itself
    NOTHING = "nothing"  # nothing is loaded


_PUBLICATION = {
    PlanKind.DISCOVERY_ONLY: Publication.NOTHING,
    PlanKind.EXACT_PREFIX: Publication.EXACT_CACHE,
    PlanKind.REQUEST_LOCAL_PREFIX: Publication.REQUEST_LOCAL,
    PlanKind.REQUEST_LOCAL_SEGMENTED: Publication.REQUEST_LOCAL,
}


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """``tokens`` from ``boundary`` on, out of ``donor_id`` at the same positions. Only an exact prefix has tokens."""

    kind: PlanKind
    publication: Publication
    donor_id: str = ""
    boundary: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        if self.publication is not _PUBLICATION[self.kind]:
            raise ValueError(f"a plan of kind {self.kind} is never published to {self.publication}")
        if bool(self.tokens) != (self.kind is PlanKind.EXACT_PREFIX) or self.tokens < 0 or self.boundary < 0:
            raise ValueError(
                f"a plan of kind {self.kind} cannot claim {self.tokens} tokens from position {self.boundary}"
            )


def not_loaded(kind: PlanKind) -> LoadPlan:
    if kind is PlanKind.EXACT_PREFIX:
        kind = PlanKind.DISCOVERY_ONLY
    return LoadPlan(kind, _PUBLICATION[kind])


def classify(plan: ReusePlan, shared_prefix: Callable[[str], int], block_tokens: int) -> LoadPlan:
    """The part of a plan this engine can load: whole blocks of its leading exact run, or the kind of plan it is."""
    head = plan.runs[0]
    boundary = plan.exact_prefix_tokens
    end = min(shared_prefix(head.donor_id), plan.prompt_tokens - 1) // block_tokens * block_tokens
    if head.shift == 0 and boundary % block_tokens == 0 and end > boundary:
        return LoadPlan(PlanKind.EXACT_PREFIX, Publication.EXACT_CACHE, head.donor_id, boundary, end - boundary)
    return not_loaded(PlanKind.REQUEST_LOCAL_SEGMENTED if plan.compute else PlanKind.REQUEST_LOCAL_PREFIX)


def refusal(load: LoadPlan) -> Decline | None:
    """Request-local KV needs an engine that keeps it private; the published interface does not offer that."""
    if load.publication is Publication.EXACT_CACHE:
        return None
    return Decline(
        DeclineReason.UNSUPPORTED_MODE,
        f"{load.kind}: the engine publishes every full block under its tokens' hash and offers no way to keep one back",
    )
