"""Donors as tokens: prompts in the radix tree that look-ups can find. Their KV stays in the tree, unpinned.

Four bytes per token, one entry per donor; the planner's index is the bound, and what it evicts leaves here as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sembase.errors import DonorError
from semblend.contract import Event, Namespace
from semblend.contract.donor_event import Tier
from semblend.integration.announce import SILENT, Announcer
from semblend.integration.core.findable_donors import FindableDonors
from semblend.pipeline.planner import Planner


@dataclass(frozen=True, slots=True)
class Donor:
    tokens: NDArray[np.uint32]
    namespace: Namespace


class Donors:
    """Keeps the planner's index and the donors' tokens consistent. ``version`` changes with every change.

    ``announcer`` reports to routers what can be loaded here and what no longer can.
    """

    def __init__(
        self,
        planner: Planner,
        emit: Callable[[Event], None],
        min_tokens: int,
        page_tokens: int,
        announcer: Announcer = SILENT,
    ) -> None:
        self._findable = FindableDonors(planner, emit, announcer)
        self._min_tokens = min_tokens
        self._page_tokens = page_tokens
        self._held: dict[str, Donor] = {}
        self.on_added: Callable[[NDArray[np.uint32], Namespace], None] = lambda tokens, namespace: None
        self._tiers: dict[str, Tier] = {}  # of those the device no longer has whole
        self._serial = 0

    @property
    def version(self) -> int:
        return self._findable.version

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, donor_id: str) -> bool:
        return donor_id in self._held

    def tokens_of(self, donor_id: str) -> NDArray[np.uint32] | None:
        donor = self._held.get(donor_id)
        return None if donor is None else donor.tokens

    def add(self, rid: str, tokens: NDArray[np.uint32], namespace: Namespace, text: str | None = None) -> str | None:
        """A new donor, unless too little of it is new. It replaces a donor that it merely continues."""
        if not namespace.is_known or len(tokens) < self._min_tokens:
            return None
        known = self._findable.reusable(tokens, namespace)
        if known is not None and len(tokens) - known.reused_tokens < self._min_tokens:
            return None
        continued = self._findable.continued_by(known, lambda donor_id: len(self._held[donor_id].tokens))
        self._serial += 1
        donor_id = f"{rid[:64]}#{self._serial}"
        if not self._register(donor_id, Donor(tokens.copy(), namespace), text):
            return None
        if continued is not None:
            self.drop(continued, "superseded")
        blocks = -(-len(tokens) // self._page_tokens)
        self._findable.registered(rid, donor_id, len(tokens), namespace, blocks)
        self.on_added(tokens, namespace)
        return donor_id

    def borrow(self, donor_id: str, tokens: NDArray[np.uint32], namespace: Namespace) -> bool:
        """A donor of another replica whose KV is in host memory. False if it cannot be indexed."""
        self._tiers[donor_id] = "host"
        return self._register(donor_id, Donor(tokens, namespace), None)

    def shorten(self, donor_id: str, tokens: int) -> None:
        """The tree has evicted all but the first ``tokens``; a remainder that is too short is dropped."""
        donor = self._held.get(donor_id)
        if donor is None or tokens >= len(donor.tokens):
            return
        if tokens < self._min_tokens:
            self.drop(donor_id, "evicted by the engine")
        else:
            self._register(donor_id, Donor(donor.tokens[:tokens].copy(), donor.namespace), None)

    def seen(self, donor_id: str, tier: Tier) -> None:
        """The last requested part of a donor is in ``tier``; a change is announced to routers."""
        if donor_id in self._held and tier != self._tiers.get(donor_id, "device"):
            self._tiers[donor_id] = tier
            self._findable.announcer.relocated(donor_id, tier)

    def drop(self, donor_id: str, reason: str, *, is_purge: bool = False) -> None:
        self._tiers.pop(donor_id, None)
        if (donor := self._held.pop(donor_id, None)) is not None:
            self._findable.removed(donor_id, donor.namespace, reason, is_purge=is_purge)

    def clear(self) -> None:
        for donor_id in list(self._held):
            self.drop(donor_id, "reset", is_purge=True)
        self._findable.announcer.purged("reset")

    def _register(self, donor_id: str, donor: Donor, text: str | None) -> bool:
        try:
            evicted = self._findable.index(donor_id, donor.tokens, donor.namespace, text)
        except DonorError:  # larger than the whole index
            self.drop(donor_id, "not indexed")
            return False
        self._held[donor_id] = donor
        for other in evicted:
            self.drop(other, "index_full")
        if donor_id not in self._held:
            return False
        self._findable.announce(donor_id, donor.tokens, donor.namespace, self._tiers.get(donor_id, "device"))
        return True
