"""Donors that a look-up can find: the planner's index, the events and the announcements about them stay in step.

Adapters call it when a donor's KV is complete and when it is gone. They keep to themselves where that KV is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from semblend.contract import DonorEvicted, DonorRegistered, Event, Namespace, ReusePlan
from semblend.contract.donor_event import Tier
from semblend.integration.announce import SILENT, Announcer
from semblend.integration.core.namespace import announced_names
from semblend.pipeline.planner import Planner

Tokens = NDArray[np.uint32]


class FindableDonors:
    """``version`` changes whenever the same look-up may have another answer."""

    def __init__(self, planner: Planner, emit: Callable[[Event], None], announcer: Announcer = SILENT) -> None:
        self.version = 0
        self._planner = planner
        self._emit = emit
        self.announcer = announcer

    def reusable(self, tokens: Tokens, namespace: Namespace) -> ReusePlan | None:
        """What the donors already offer of a prompt that may become one itself."""
        known = self._planner.plan(tokens, namespace)
        return known if isinstance(known, ReusePlan) else None

    @staticmethod
    def continued_by(known: ReusePlan | None, length_of: Callable[[str], int | None]) -> str | None:
        """The donor that a new one merely continues: whatever it offers, the new one offers too."""
        if known is None:
            return None
        head = known.runs[0]
        is_whole = head.donor_start == head.target_start == 0 and head.length == length_of(head.donor_id)
        return head.donor_id if is_whole else None

    def index(self, donor_id: str, tokens: Tokens, namespace: Namespace, text: str | None = None) -> Sequence[str]:
        """Make a donor findable; the donors the index evicted for it. ``DonorError``: it exceeds the whole index."""
        evicted = self._planner.register(donor_id, tokens, namespace, text)
        self.version += 1
        return evicted

    def registered(self, request_id: str, donor_id: str, tokens: int, namespace: Namespace, blocks: int | None) -> None:
        self._emit(DonorRegistered(request_id, donor_id, namespace.digest(), tokens, blocks))

    def announce(self, donor_id: str, tokens: Tokens, namespace: Namespace, tier: Tier) -> None:
        self.announcer.loadable(donor_id, tokens, *announced_names(namespace), tier)

    def removed(self, donor_id: str, namespace: Namespace, reason: str, *, is_purge: bool = False) -> None:
        """A donor is gone. ``is_purge``: all are, and the caller announces that once."""
        self.version += 1
        self._planner.forget(donor_id)
        self._emit(DonorEvicted(donor_id, namespace.digest(), reason))
        if not is_purge:
            self.announcer.withdrawn(donor_id, reason)
