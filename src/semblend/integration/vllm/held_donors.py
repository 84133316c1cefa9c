"""Where donors have KV: in the store, in the engine's cache, or in both. A donor can be found while one holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sembase.errors import DonorError
from semblend.contract import Event, Namespace, ReusePlan
from semblend.integration.announce import Announcer
from semblend.integration.core.donor_book import Donor, DonorBook
from semblend.integration.core.findable_donors import FindableDonors
from semblend.integration.vllm.cached_donors import CachedDonors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from semblend.contract.donor_event import Tier
    from semblend.integration.vllm.options import ConnectorOptions
    from semblend.integration.vllm.request_record import VllmRequest
    from semblend.pipeline.planner import Planner


class HeldDonors:
    """Keeps planner, book and cache consistent: every findable donor is stored on every rank or was computed into the
    engine's cache and not copied, and nothing else is findable.
    """

    def __init__(
        self,
        options: ConnectorOptions,
        planner: Planner,
        cached: CachedDonors,
        block_tokens: int,
        emit: Callable[[Event], None],
        announcer: Announcer,
    ) -> None:
        self.book = DonorBook(options.host_bytes)
        self._options = options
        self._planner = planner
        self._cached = cached
        self._block_tokens = block_tokens
        self._announcer = announcer
        self._findable = FindableDonors(planner, emit, announcer)
        self._dropped: list[str] = []
        self._shared: set[str] = set()  # not findable yet

    @property
    def version(self) -> int:
        """Changes with the set of donors that can be found."""
        return self._findable.version

    def can_find(self, plan: ReusePlan) -> bool:
        """Whether no donor of the plan was evicted since it was made."""
        return all(donor_id in self._planner for donor_id in plan.donor_ids)

    def used(self, plan: ReusePlan) -> None:
        for donor_id in plan.donor_ids:
            self.book.touch(donor_id)

    def store(self, donor_id: str, record: VllmRequest, tokens: NDArray[np.uint32]) -> bool:
        """Every rank has stored a reserved donor: make it findable. False when it is not held."""
        tier: Tier = "storage" if donor_id in self._shared else "host"
        self._shared.discard(donor_id)
        donor = self.book.store(donor_id)
        if donor is None:  # evicted or reset while it was copied
            self._dropped.append(donor_id)
            return False
        known = self._findable.reusable(tokens, record.namespace)
        superseded = self._findable.continued_by(known, self.book.tokens_of)
        try:
            evicted = self._findable.index(donor_id, tokens, record.namespace)
        except DonorError as error:
            self.drop(donor_id, f"not indexed: {error}")
            return False
        if superseded is not None:
            self.drop(superseded, "superseded")
        for other in evicted:
            self.drop(other, "index_full")
        if donor_id not in self.book:
            return False
        blocks = -(-donor.tokens // self._block_tokens)
        self._findable.registered(record.request_id, donor_id, donor.tokens, record.namespace, blocks)
        self._findable.announce(donor_id, tokens, record.namespace, tier)
        return True

    def share(self, donor_id: str) -> None:
        """The fleet's store has this donor, or will have soon: it is announced as one that others can fetch."""
        self._shared.add(donor_id)

    def copying(self, donor_id: str, record: VllmRequest, tokens: int) -> None:
        """A living request is being copied. Its blocks may serve as well, or longer."""
        if not record.is_accepted and self._options.cached_donors:
            self._cached.add(donor_id, record.request, tokens)

    def keep_in_cache(self, donor_id: str, record: VllmRequest, tokens: NDArray[np.uint32]) -> None:
        """No copy is made of this prompt: it is a donor until its blocks leave the engine's cache."""
        if record.is_accepted or not self._options.cached_donors:
            return  # hashes are private from its claim on
        self._cached.add(donor_id, record.request, len(tokens))
        if self._register_cached(donor_id, tokens, record.namespace):
            record.donor_id = donor_id
            self._findable.registered(
                record.request_id, donor_id, self._cached.tokens_of(donor_id), record.namespace, None
            )

    def left_cache(self, donor_ids: Iterable[str]) -> None:
        """Blocks of these donors were evicted, and nothing else holds them."""
        for donor_id in donor_ids:
            if self._cached.holds_alone(donor_id):
                self.drop(donor_id, "left_cache")

    def evicted(self, donor: Donor) -> None:
        """The book has removed it; the workers drop it with this step's commands. The cache may still hold it."""
        tokens = self._planner.tokens_of(donor.donor_id) if self._cached.may_hold(donor.donor_id) else None
        if tokens is None or not self._register_cached(donor.donor_id, tokens, donor.namespace):
            self._cached.remove(donor.donor_id)
            self._gone(donor, "capacity")

    def not_copied(self, donor_id: str) -> None:
        """The copy was given up: the cache is not searched for a donor that does not exist."""
        self._cached.remove(donor_id)

    def give_up(self, donor_id: str) -> None:
        """Copying or registering it failed: nothing of it may be found, and the workers drop it."""
        self._planner.forget(donor_id)
        self.book.remove(donor_id)
        self._shared.discard(donor_id)
        self._announcer.withdrawn(donor_id, "given_up")
        self._dropped.append(donor_id)

    def drop(self, donor_id: str, reason: str) -> None:
        alone = self._cached.remove(donor_id)
        if (donor := self.book.remove(donor_id)) is not None:
            self._dropped.append(donor_id)
            self._gone(donor, reason)
        elif alone is not None:
            self._gone(alone, reason)
        else:  # not in the book, but maybe in the index
            self._planner.forget(donor_id)

    def forget_all(self) -> None:
        self._shared.clear()
        self._announcer.purged("reset")
        for donor_id in [*self.book.ids(), *self._cached.alone()]:
            self.drop(donor_id, "reset")

    def take_dropped(self) -> list[str]:
        """Donors the workers must drop."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _register_cached(self, donor_id: str, tokens: NDArray[np.uint32], namespace: Namespace) -> bool:
        """Make a donor findable that only the cache holds: its full blocks. False if they are too few."""
        covered = self._cached.tokens_of(donor_id)
        if covered < self._options.min_capture_tokens:
            self._cached.remove(donor_id)
            return False
        try:
            evicted = self._findable.index(donor_id, tokens[:covered], namespace)
        except DonorError:
            self._cached.remove(donor_id)
            return False
        for other in evicted:
            self.drop(other, "index_full")
        for oldest in self._cached.keep_alone(Donor(donor_id, covered, namespace, 0)):
            self._cached.remove(oldest.donor_id)
            self._gone(oldest, "capacity")
        if not self._cached.holds_alone(donor_id):
            return False
        self._findable.announce(donor_id, tokens[:covered], namespace, "device")
        return True

    def _gone(self, donor: Donor, reason: str) -> None:
        self._findable.removed(donor.donor_id, donor.namespace, reason)
