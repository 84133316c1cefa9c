"""Donor streams over ZeroMQ: endpoints in, a sink per replica that receives what its connector announces, in order.

One task per replica on the running loop. ``sembase.ordered_stream`` handles gaps, restarts and lost streams; they empty
the replica's part of the index, and the publisher announces its state again. Used by the router and for Dynamo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sembase.errors import MissingDependencyError
from sembase.kept_task import KeptTask
from sembase.ordered_stream import Sink
from semblend.contract.donor_event import TOPIC, replay_endpoint
from semblend.donors.packing import is_snapshot

try:
    import zmq.asyncio
except ImportError as error:
    raise MissingDependencyError(str(error.name), "dynamo", "donor events over ZeroMQ") from None

from sembase.event_batch import published_s
from sembase.zmq_curve import CurveClient
from sembase.zmq_stream import StreamOptions, ZmqStream, new_context

S = TypeVar("S", bound=Sink)


@dataclass(frozen=True, slots=True)
class _Subscription(Generic[S]):
    sink: S
    stream: ZmqStream
    task: KeptTask


class DonorFeed(Generic[S]):
    """``follow`` and ``leave`` may be called at any time on the running loop; ``close`` ends all tasks.

    Replicas are numbered by the caller. ``make_sink`` makes the sink of one, ``forget`` drops all that is known of it.
    With ``curve`` only publishers with that key are read.
    """

    def __init__(
        self,
        make_sink: Callable[[int], S],
        forget: Callable[[int], None],
        context: zmq.asyncio.Context | None = None,
        curve: CurveClient | None = None,
    ) -> None:
        self._curve = curve
        self._make_sink = make_sink
        self._forget = forget
        self._context = context or new_context()
        self._owns_context = context is None
        self._followed: dict[int, _Subscription[S]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self, replica: int, endpoint: str, replay: str | None = None) -> None:
        """Listen to a replica's connector; missed messages are requested at ``replay``, by default the port above."""
        self.leave(replica)
        options = StreamOptions(endpoint, replay or replay_endpoint(endpoint), topic=TOPIC, curve=self._curve)
        sink = self._make_sink(replica)
        stream = ZmqStream(self._context, options, sink, stamp=published_s, is_snapshot=is_snapshot)
        task = KeptTask(f"donors of {replica}", stream.run, stream.forget)
        self._followed[replica] = _Subscription(sink, stream, task)

    def leave(self, replica: int) -> None:
        """The replica is gone, and its donors with it."""
        if (subscription := self._followed.pop(replica, None)) is not None:
            ending = subscription.task.cancel()
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
        self._forget(replica)

    def stream_of(self, replica: int) -> ZmqStream | None:
        subscription = self._followed.get(replica)
        return None if subscription is None else subscription.stream

    def sink_of(self, replica: int) -> S | None:
        subscription = self._followed.get(replica)
        return None if subscription is None else subscription.sink

    async def close(self) -> None:
        for replica in list(self._followed):
            self.leave(replica)
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._owns_context:
            self._context.destroy(linger=0)
