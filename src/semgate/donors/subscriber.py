"""The donor streams of all replicas into one index: endpoints in, an index that follows what connectors announce.

One task per replica, on the router's loop. Gaps, restarts and lost streams are the stream's to notice (``events``);
here they empty the replica's part of the index, and the publisher tells again what is true. Called by the router.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import zmq.asyncio

from semblend.contract.donor_event import (
    TOPIC,
    DonorAnnounced,
    DonorEvent,
    DonorEventError,
    DonorRelocated,
    DonorsPurged,
    DonorWithdrawn,
    GenerationReset,
    replay_endpoint,
)
from semgate.donors.anchors import DonorIndex
from semgate.donors.wire import announced_s, unpack
from semgate.events.kept_task import KeptTask
from semgate.events.subscriber import EventStream, ResetReason, StreamCounters, StreamOptions


@dataclass(slots=True)
class DonorCounters:
    """Per replica. ``malformed`` messages and events of ``unknown`` kinds were left out."""

    announced: int = 0
    withdrawn: int = 0
    purges: int = 0
    relocated: int = 0
    generations: int = 0
    unknown: int = 0
    malformed: int = 0


class DonorSink:
    """One replica's messages, applied to its slot. Never raises: a bad message is counted."""

    def __init__(self, index: DonorIndex, slot: int) -> None:
        self.counters = DonorCounters()
        self._index = index
        self._slot = slot

    def deliver(self, payload: bytes) -> None:
        try:
            batch = unpack(payload)
        except DonorEventError:
            self.counters.malformed += 1
            return
        self.counters.unknown += batch.unknown
        for event in batch.events:
            self._apply(event)

    def reset(self, reason: ResetReason) -> None:
        self._index.clear(self._slot)

    def _apply(self, event: DonorEvent) -> None:
        match event:
            case DonorAnnounced():
                self.counters.announced += 1
                self._index.add(self._slot, event)
            case DonorWithdrawn(donor_id=donor_id):
                self.counters.withdrawn += 1
                self._index.remove(self._slot, donor_id)
            case DonorsPurged(namespace=namespace):
                self.counters.purges += 1
                self._index.clear(self._slot, namespace)
            case GenerationReset():
                self.counters.generations += 1
                self._index.clear(self._slot)
            case DonorRelocated():
                self.counters.relocated += 1  # every tier can be loaded from; their prices are not known yet


@dataclass(frozen=True, slots=True)
class _Subscription:
    stream: EventStream
    sink: DonorSink
    task: KeptTask


class DonorFeed:
    """``follow`` and ``leave`` may be called at any time on the running loop; ``close`` ends all tasks."""

    def __init__(self, index: DonorIndex, context: zmq.asyncio.Context) -> None:
        self._index = index
        self._context = context
        self._streams: dict[int, _Subscription] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self, slot: int, endpoint: str, replay: str | None = None) -> None:
        """Listen to a replica's connector, and ask it for what was missed on the port above unless told otherwise."""
        self.leave(slot)
        sink = DonorSink(self._index, slot)
        options = StreamOptions(endpoint, replay or replay_endpoint(endpoint), topic=TOPIC)
        stream = EventStream(self._context, options, sink, stamp=announced_s)
        task = KeptTask(f"donors of slot {slot}", stream.run, stream.forget)
        self._streams[slot] = _Subscription(stream, sink, task)

    def leave(self, slot: int) -> None:
        """The replica is gone, and its donors with it."""
        if (subscription := self._streams.pop(slot, None)) is not None:
            ending = subscription.task.cancel()
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        self._index.clear(slot)

    def counters(self) -> Mapping[int, tuple[StreamCounters, DonorCounters]]:
        return {slot: (entry.stream.counters, entry.sink.counters) for slot, entry in self._streams.items()}

    def is_connected(self, slot: int) -> bool:
        subscription = self._streams.get(slot)
        return subscription is not None and subscription.stream.connected

    async def close(self) -> None:
        for slot in list(self._streams):
            self.leave(slot)
        await asyncio.gather(*self._ending, return_exceptions=True)
