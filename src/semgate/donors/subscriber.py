"""The donor streams of all replicas into one index: endpoints in, an index that follows what connectors announce.

One task per replica, on the router's loop. Gaps, restarts and lost streams are the stream's to notice (``events``);
here they empty the replica's part of the index, and the publisher tells again what is true. Called by the router.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import zmq.asyncio

from semblend.contract.donor_event import TOPIC, replay_endpoint
from semblend.donors.index import DonorIndex
from semblend.donors.packing import published_s
from semblend.donors.sink import DonorCounters, DonorSink
from semgate.events.kept_task import KeptTask
from semgate.events.subscriber import EventStream, StreamCounters, StreamOptions


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
        stream = EventStream(self._context, options, sink, stamp=published_s)
        task = KeptTask(f"donors of slot {slot}", stream.run, stream.forget)
        self._streams[slot] = _Subscription(stream, sink, task)

    def leave(self, slot: int) -> None:
        """The replica is gone, and its donors with it."""
        if (subscription := self._streams.pop(slot, None)) is not None:
            ending = subscription.task.cancel()
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        self._index.forget(slot)

    def counters(self) -> Mapping[int, tuple[StreamCounters, DonorCounters]]:
        return {slot: (entry.stream.counters, entry.sink.counters) for slot, entry in self._streams.items()}

    def is_connected(self, slot: int) -> bool:
        subscription = self._streams.get(slot)
        return subscription is not None and subscription.stream.connected

    async def close(self) -> None:
        for slot in list(self._streams):
            self.leave(slot)
        await asyncio.gather(*self._ending, return_exceptions=True)
