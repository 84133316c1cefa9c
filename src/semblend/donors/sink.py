"""One replica's announcements applied to its slot of the index: payloads or batches in, calls of ``DonorIndex`` out."""

from __future__ import annotations

from dataclasses import dataclass

from sembase.errors import ConfigurationError
from sembase.ordered_stream import ResetReason, in_slices
from semblend.contract.donor_event import (
    DonorAnnounced,
    DonorBatch,
    DonorEvent,
    DonorEventError,
    DonorRelocated,
    DonorsPurged,
    DonorWithdrawn,
    GatesAnnounced,
    GenerationReset,
)
from semblend.donors.index import DonorIndex, announced_gates
from semblend.donors.packing import unpack


@dataclass(slots=True)
class DonorCounters:
    """Per replica. ``malformed`` messages and gates, and events of ``unknown`` kinds, were left out."""

    announced: int = 0
    withdrawn: int = 0
    purges: int = 0
    relocated: int = 0
    generations: int = 0
    gates: int = 0
    unknown: int = 0
    malformed: int = 0


class DonorSink:
    """Writes to one slot. Never raises: a bad message is counted."""

    def __init__(self, index: DonorIndex, slot: int) -> None:
        self.counters = DonorCounters()
        self.slot = slot
        self._index = index

    async def deliver(self, payload: bytes) -> None:
        try:
            batch = unpack(payload)
        except DonorEventError:
            self.counters.malformed += 1
            return
        self.counters.unknown += batch.unknown
        async for event in in_slices(batch.events):
            self._apply(event)

    def apply(self, batch: DonorBatch) -> None:
        self.counters.unknown += batch.unknown
        for event in batch.events:
            self._apply(event)

    def reset(self, reason: ResetReason) -> None:
        """Messages were lost: drop the donors. The gates stay until the publisher resets its generation."""
        self._index.clear(self.slot)

    def _apply(self, event: DonorEvent) -> None:
        match event:
            case DonorAnnounced():
                self.counters.announced += 1
                self._index.add(self.slot, event)
            case DonorWithdrawn(donor_id=donor_id):
                self.counters.withdrawn += 1
                self._index.remove(self.slot, donor_id)
            case DonorsPurged(namespace=namespace):
                self.counters.purges += 1
                self._index.clear(self.slot, namespace)
            case GenerationReset():
                self.counters.generations += 1
                self._index.forget(self.slot)
            case GatesAnnounced(gates=gates):
                try:
                    self._index.set_gates(self.slot, announced_gates(gates))
                    self.counters.gates += 1
                except ConfigurationError:
                    self.counters.malformed += 1
            case DonorRelocated(donor_id=donor_id, tier=tier):
                self.counters.relocated += 1
                self._index.relocate(self.slot, donor_id, tier)
