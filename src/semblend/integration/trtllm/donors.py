"""The donors of the leader: findable by tokens, and, where pages are loaded, backed by pages the worker has confirmed.

Tokens live in the planner's index, which is bounded; host pages are bounded by ``host_bytes``, the one that was used
longest ago leaves first.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sembase.errors import DonorError
from semblend.contract import DonorEvicted, DonorRegistered, Event, Namespace, ReusePlan
from semblend.pipeline.planner import Planner


@dataclass(frozen=True, slots=True)
class Candidate:
    """A prompt that may become a donor. ``blocks`` is 0 where no pages are kept."""

    donor_id: str
    request_id: str
    tokens: NDArray[np.uint32]
    namespace: Namespace
    blocks: int = 0


class Donors:
    """``take_dropped`` names what the workers must let go of."""

    def __init__(self, planner: Planner, emit: Callable[[Event], None], min_tokens: int, host_bytes: int) -> None:
        self._planner = planner
        self._emit = emit
        self._min_tokens = min_tokens
        self._host_bytes = host_bytes
        self._living: OrderedDict[str, Candidate] = OrderedDict()
        self._saving: dict[str, Candidate] = {}
        self._held_blocks = 0  # of living donors and of those being saved
        self._dropped: list[str] = []

    def __len__(self) -> int:
        return len(self._living)

    def candidate(
        self, request_id: str, tokens: NDArray[np.uint32], namespace: Namespace, blocks: int = 0
    ) -> Candidate | None:
        """None when too little of it is new, or its namespace is not known."""
        if not namespace.is_known or len(tokens) < self._min_tokens:
            return None
        known = self._planner.plan(tokens, namespace)
        if isinstance(known, ReusePlan) and len(tokens) - known.reused_tokens < self._min_tokens:
            return None
        return Candidate(secrets.token_hex(8), request_id, tokens, namespace, blocks)

    def begin_save(self, candidate: Candidate, page_bytes: int) -> bool:
        """Make room for its pages; False when they could never fit. Nobody finds it before the worker confirms."""
        if candidate.blocks * page_bytes > self._host_bytes:
            return False
        while (self._held_blocks + candidate.blocks) * page_bytes > self._host_bytes:
            if not self._living:
                return False
            self.drop(next(iter(self._living)), "capacity")
        self._saving[candidate.donor_id] = candidate
        self._held_blocks += candidate.blocks
        return True

    def saved(self, donor_id: str) -> None:
        if (candidate := self._saving.pop(donor_id, None)) is not None and not self.register(candidate):
            self._held_blocks -= candidate.blocks
            self._dropped.append(donor_id)

    def save_failed(self, donor_id: str) -> None:
        if (candidate := self._saving.pop(donor_id, None)) is not None:
            self._held_blocks -= candidate.blocks

    def register(self, candidate: Candidate) -> bool:
        try:
            evicted = self._planner.register(candidate.donor_id, candidate.tokens, candidate.namespace)
        except DonorError:
            return False  # larger than the whole index
        self._living[candidate.donor_id] = candidate
        for gone in evicted:
            self._gone(gone, "capacity")
        blocks = candidate.blocks or None
        digest = candidate.namespace.digest()
        self._emit(DonorRegistered(candidate.request_id, candidate.donor_id, digest, len(candidate.tokens), blocks))
        return True

    def used(self, donor_id: str) -> None:
        if donor_id in self._living:
            self._living.move_to_end(donor_id)

    def withdraw(self, donor_id: str, reason: str) -> None:
        if donor_id in self._living:
            self.drop(donor_id, reason)

    def drop(self, donor_id: str, reason: str) -> None:
        self._planner.forget(donor_id)
        self._gone(donor_id, reason)

    def take_dropped(self, promised: Collection[str]) -> tuple[str, ...]:
        """What the workers let go of now. The pages of a promise that no order carries yet stay a step longer."""
        dropped = tuple(donor_id for donor_id in self._dropped if donor_id not in promised)
        self._dropped = [donor_id for donor_id in self._dropped if donor_id in promised]
        return dropped

    def _gone(self, donor_id: str, reason: str) -> None:
        if (donor := self._living.pop(donor_id, None)) is not None:
            self._held_blocks -= donor.blocks
            if donor.blocks:
                self._dropped.append(donor_id)
            self._emit(DonorEvicted(donor_id, donor.namespace.digest(), reason))
