"""The broad excepts of placement: an error while gathering or scoring becomes least-loaded plus the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from semgate.placement.case import Case, Choice, build_case
from semgate.placement.cost import Price
from semgate.placement.policy.least_loaded import LeastLoaded
from semgate.placement.view import PlacementRequest, ReplicaView


def guarded(
    choose: Callable[[], tuple[Case, Choice]], least_loaded: Callable[[], tuple[Case, Choice]]
) -> tuple[Case, Choice]:
    """Fail open. The exception's own text may quote a prompt, so the reason gives only its type."""
    try:
        return choose()
    except Exception as error:  # noqa: BLE001 - placement fails open
        case, choice = least_loaded()
        reason = f"{type(error).__name__} while placing; used the least loaded replica"
        return case, Choice(choice.chosen, "error_fallback", choice.scores_ms, reason)


async def evidence_or_bare(collect: Awaitable[PlacementRequest], bare: PlacementRequest) -> PlacementRequest:
    """Fail open: a request whose evidence cannot be collected is placed by load, with the error as its reason."""
    try:
        return await collect
    except Exception as error:  # noqa: BLE001 - placement fails open
        return replace(bare, evidence_error=f"{type(error).__name__} while gathering evidence")


def without_evidence(
    request: PlacementRequest,
    candidates: Sequence[ReplicaView],
    price: Price,
    turn: int,
    now_s: float,
    fallback: LeastLoaded,
) -> tuple[Case, Choice]:
    """Least loaded, from load and the size of the request alone: no index, no history."""
    bare = PlacementRequest(prompt_tokens=request.prompt_tokens, block_tokens=request.block_tokens)
    case = build_case(bare, candidates, price, turn, now_s)
    return case, fallback.choose(case)
