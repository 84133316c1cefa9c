"""Whether a replica's announcements are believed: they are compared with the cached tokens its engine reports.

A process that publishes in an engine's place could draw requests to a replica that holds nothing, or away from one that
does. In: per answered request, the tokens announced and the tokens reported; out: the slots not to believe. A client
can make an engine ignore its cache, so one tenant has at most ``PER_TENANT`` of the compared requests. Bounded.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from semgate.logs import log
from semgate.placement.view import BySlot

COMPARED: Final = 32
PER_TENANT: Final = 4
MIN_COMPARED: Final = 4
KEPT_FRACTION: Final = 0.5  # of the announced tokens; blocks may be evicted between the decision and the prefill
_Compared = deque[tuple[str, bool]]  # tenant, whether the announcement was kept


class AnnouncementTrust:
    """A replica is no longer believed when more than half of its last requests found too little, and again when at
    most a quarter did. Replicas are believed until they are compared."""

    def __init__(self) -> None:
        self._compared: dict[int, _Compared] = {}
        self._distrusted: set[int] = set()

    def compare(self, slot: int, tenant: str, announced_tokens: int, reported_tokens: int) -> None:
        """``reported_tokens``: of the prompt, found in the cache by the engine."""
        compared = self._compared.setdefault(slot, deque(maxlen=COMPARED))
        same = [each for each in compared if each[0] == tenant]
        if len(same) >= PER_TENANT:
            compared.remove(same[0])
        compared.append((tenant, reported_tokens >= KEPT_FRACTION * announced_tokens))
        broken = sum(not is_kept for _, is_kept in compared)
        if len(compared) >= MIN_COMPARED and 2 * broken > len(compared):
            self._distrust(slot, broken, len(compared))
        elif 4 * broken <= len(compared) and slot in self._distrusted:
            self._distrusted.discard(slot)
            log(logging.INFO, "announcements are believed again", slot=slot)

    @property
    def distrusted(self) -> frozenset[int]:
        return frozenset(self._distrusted)

    def is_believed(self, slot: int) -> bool:
        return slot not in self._distrusted

    def forget(self, slot: int) -> None:
        """Another replica takes the slot, or its process restarted."""
        self._compared.pop(slot, None)
        self._distrusted.discard(slot)

    def believed(self, by_slot: BySlot | None) -> BySlot | None:
        """The same without the slots that are not believed."""
        if by_slot is None or not self._distrusted:
            return by_slot
        kept = by_slot.copy()
        for slot in self._distrusted:
            if slot < kept.size:
                kept[slot] = 0
        return kept

    def _distrust(self, slot: int, broken: int, compared: int) -> None:
        if slot not in self._distrusted:
            self._distrusted.add(slot)
            log(
                logging.WARNING,
                "announcements are not believed: the engine reports fewer cached tokens than were announced",
                slot=slot,
                broken=broken,
                compared=compared,
                fix="check who publishes on the replica's event port",
            )
