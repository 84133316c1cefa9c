"""A request and the candidate replicas as arrays, ready to be scored, and the choice a policy returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semgate.placement.cost import Price
from semgate.placement.decision import RoutePath
from semgate.placement.view import ROW_NUMBERS, BySlot, Floats, PlacementRequest, ReplicaView

_EVEN_MS = 1e-6  # scores that differ by less than a nanosecond are equal


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Arrays run over the candidates. ``cached_blocks``: leading blocks each holds, announced by the engine or sent
    there too recently to be announced. ``home``: the candidate that served the session last, ``home_tokens`` the prompt
    it saw then, ``home_age_s`` how long ago. ``turn`` counts decisions: ties are taken in turn."""

    request: PlacementRequest
    candidates: Sequence[ReplicaView]
    slots: NDArray[np.int64]
    wait_ms: Floats
    cached_blocks: Floats
    price: Price
    turn: int
    home: int | None = None
    home_tokens: int = 0
    home_age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """``chosen`` is a position among the candidates, ``expected_tokens`` the prefill tokens expected to be reused."""

    chosen: int
    path: RoutePath
    scores_ms: Floats
    reason: str
    expected_tokens: float = 0.0


def build_case(
    request: PlacementRequest,
    candidates: Sequence[ReplicaView],
    price: Price,
    turn: int,
    now_s: float,
) -> Case:
    rows = np.frombuffer(b"".join([each.row for each in candidates])).reshape(-1, ROW_NUMBERS)
    slots = rows[:, 0].astype(np.int64)
    wait_ms = price.wait_ms(rows[:, 1], rows[:, 2], rows[:, 3], (now_s - rows[:, 4]) * 1e3)
    exact = np.maximum(at_slots(request.exact_blocks, slots), at_slots(request.expected_blocks, slots))
    return Case(
        request=request,
        candidates=candidates,
        slots=slots,
        wait_ms=wait_ms,
        cached_blocks=exact,
        price=price,
        turn=turn,
    )


def at_slots(by_slot: BySlot | None, slots: NDArray[np.int64]) -> Floats:
    """Evidence by slot -> by candidate; zero if the index does not know the slot yet."""
    if by_slot is None or not by_slot.size:
        return np.zeros(slots.size)
    if slots.max() < by_slot.size:
        return by_slot[slots].astype(np.float64)
    return np.where(slots < by_slot.size, by_slot[np.minimum(slots, by_slot.size - 1)], 0).astype(np.float64)


def best_in_turn(scores_ms: Floats, turn: int) -> int:
    """The best candidate; ties are broken in turn, so that no replica is starved."""
    best = np.flatnonzero(scores_ms >= scores_ms.max() - _EVEN_MS)
    if best.size == 1:
        return int(best[0])
    start = turn % scores_ms.size
    after = int(np.searchsorted(best, start))
    return int(best[after % best.size])
