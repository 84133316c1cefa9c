"""The donors of the leader: findable by tokens and, where pages are loaded, backed by pages the worker has confirmed.

Tokens are in the planner's index, which is bounded; host pages are bounded by ``host_bytes``, least recently used out
first.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sembase.errors import DonorError
from semblend.contract import Event, Namespace
from semblend.integration.core.donor_book import Donor, DonorBook
from semblend.integration.core.findable_donors import FindableDonors
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
    """``take_dropped`` names the donors whose pages the workers must drop."""

    def __init__(self, planner: Planner, emit: Callable[[Event], None], min_tokens: int, host_bytes: int) -> None:
        self._findable = FindableDonors(planner, emit)
        self._book = DonorBook(host_bytes)
        self._min_tokens = min_tokens
        self._saving: dict[str, Candidate] = {}
        self._dropped: list[str] = []

    def __len__(self) -> int:
        return len(self._book)

    def ids(self) -> list[str]:
        """Donors that can be found."""
        return [donor_id for donor_id in self._book.ids() if donor_id in self._book]

    def candidate(
        self, request_id: str, tokens: NDArray[np.uint32], namespace: Namespace, blocks: int = 0
    ) -> Candidate | None:
        """None when too little of it is new, or its namespace is not known."""
        if not namespace.is_known or len(tokens) < self._min_tokens:
            return None
        known = self._findable.reusable(tokens, namespace)
        if known is not None and len(tokens) - known.reused_tokens < self._min_tokens:
            return None
        return Candidate(secrets.token_hex(8), request_id, tokens, namespace, blocks)

    def begin_save(self, candidate: Candidate, page_bytes: int) -> bool:
        """Make room for its pages; False when they cannot fit. It is not findable before the worker confirms."""
        if not self._reserve(candidate, candidate.blocks * page_bytes):
            return False
        self._saving[candidate.donor_id] = candidate
        return True

    def saved(self, donor_id: str) -> None:
        if (candidate := self._saving.pop(donor_id, None)) is not None and not self._index(candidate):
            self._book.remove(donor_id)
            self._dropped.append(donor_id)

    def save_failed(self, donor_id: str) -> None:
        if self._saving.pop(donor_id, None) is not None:
            self._book.remove(donor_id)

    def register(self, candidate: Candidate) -> bool:
        """A donor without pages, which can be found and never loaded."""
        if not self._reserve(candidate, 0):
            return False
        if not self._index(candidate):
            self._book.remove(candidate.donor_id)
            return False
        return True

    def used(self, donor_id: str) -> None:
        self._book.touch(donor_id)

    def withdraw(self, donor_id: str, reason: str) -> None:
        if donor_id in self._book:
            self.drop(donor_id, reason)

    def drop(self, donor_id: str, reason: str) -> None:
        if (donor := self._book.remove(donor_id)) is not None:
            self._gone(donor, reason)

    def take_dropped(self, promised: Collection[str]) -> tuple[str, ...]:
        """What the workers drop now. Pages of a claim that no command carries yet stay one step longer."""
        dropped = tuple(donor_id for donor_id in self._dropped if donor_id not in promised)
        self._dropped = [donor_id for donor_id in self._dropped if donor_id in promised]
        return dropped

    def _reserve(self, candidate: Candidate, kv_bytes: int) -> bool:
        donor = Donor(candidate.donor_id, len(candidate.tokens), candidate.namespace, kv_bytes)
        evicted = self._book.reserve(donor)
        for other in evicted or ():
            self._gone(other, "capacity")
        return evicted is not None

    def _index(self, candidate: Candidate) -> bool:
        donor_id = candidate.donor_id
        try:
            evicted = self._findable.index(donor_id, candidate.tokens, candidate.namespace)
        except DonorError:  # larger than the whole index
            return False
        self._book.store(donor_id)
        for other in evicted:
            self.drop(other, "capacity")
        blocks = candidate.blocks or None
        self._findable.registered(candidate.request_id, donor_id, len(candidate.tokens), candidate.namespace, blocks)
        return True

    def _gone(self, donor: Donor, reason: str) -> None:
        if donor.kv_bytes:
            self._dropped.append(donor.donor_id)
        self._findable.removed(donor.donor_id, donor.namespace, reason)
