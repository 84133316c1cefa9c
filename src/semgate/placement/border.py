"""The broad excepts of placement: what goes wrong while gathering or scoring becomes least-loaded plus the reason."""

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
    """Fail open. The exception's own text may quote a prompt, so only its type is told."""
    try:
        return choose()
    except Exception as error:  # noqa: BLE001 - placement fails open
        case, choice = least_loaded()
        reason = f"{type(error).__name__} while placing; least loaded instead"
        return case, Choice(choice.place, "error_fallback", choice.scores_ms, reason)


async def gathered(gather: Awaitable[PlacementRequest], bare: PlacementRequest) -> PlacementRequest:
    """Fail open: a request whose evidence cannot be had is placed by load, and says why."""
    try:
        return await gather
    except Exception as error:  # noqa: BLE001 - placement fails open
        return replace(bare, trouble=f"{type(error).__name__} while gathering evidence")


def without_evidence(
    request: PlacementRequest,
    candidates: Sequence[ReplicaView],
    price: Price,
    turn: int,
    now_s: float,
    fallback: LeastLoaded,
) -> tuple[Case, Choice]:
    """Least loaded from the load alone: no index, no history, nothing of the request but its size."""
    bare = PlacementRequest(prompt_tokens=request.prompt_tokens, block_tokens=request.block_tokens)
    case = build_case(bare, candidates, price, turn, now_s)
    return case, fallback.choose(case)
