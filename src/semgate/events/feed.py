"""All replicas' events into one index: replicas are added and removed, one task each; out: slots and stream status.

Unread messages are bounded per replica by ZeroMQ's own queue (``StreamOptions.receive_messages``).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sembase.errors import ConfigurationError
from sembase.event_batch import published_s
from sembase.kept_task import KeptTask
from sembase.ordered_stream import StreamCounters
from sembase.zmq_stream import StreamOptions, ZmqStream, new_context
from semgate.events.apply import MAX_ADAPTERS, ApplyCounters, ReplicaSink
from semgate.events.resume import StreamState
from semgate.index.blocks import BlockIndex
from semgate.index.held import entries
from semgate.index.keys import root_key

ANY_MODEL: Final = ""

RESTORED_AT_ONCE: Final = 4_096  # blocks; a millisecond or two

# What a stream had announced before a restart of ours; None: unknown.
LoadState = Callable[[], Awaitable[StreamState | None]]


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The state of one replica's stream. ``next_seq`` is ``None`` before its first message or replay."""

    replica: str
    slot: int
    connected: bool
    next_seq: int | None
    blocks: int
    block_tokens: int | None
    stream: StreamCounters
    applied: ApplyCounters
    deaths: int


@dataclass(frozen=True, slots=True)
class _Listener:
    slot: int
    model: str
    stream: ZmqStream
    sink: ReplicaSink
    task: KeptTask
    restored: asyncio.Event


class EventFeed:
    """``add`` and ``remove`` inside the running loop; ``close`` ends all tasks and sockets."""

    def __init__(self, index: BlockIndex) -> None:
        self.index = index
        self._context = new_context()
        self._listeners: dict[str, _Listener] = {}
        self._adapters: dict[str, str] = {}
        self._served: Counter[str] = Counter()  # replicas by model; looked up by every request

    def add(
        self, replica: str, options: StreamOptions, *, model: str = ANY_MODEL, load_state: LoadState | None = None
    ) -> int:
        """Follow a replica; returns its slot. ``model`` only where replicas serve different ones. ``load_state`` is
        awaited before the stream is followed; it needs a replay endpoint."""
        if replica in self._listeners:
            raise ConfigurationError(f"replica {replica} is already followed; remove it first")
        slot = self.index.add_slot()

        def on_adapter(name: str) -> None:
            if len(self._adapters) < MAX_ADAPTERS:
                self._adapters[name] = model

        sink = ReplicaSink(self.index, slot, model, on_adapter=on_adapter)
        stream = ZmqStream(self._context, options, sink, stamp=published_s)
        restored = asyncio.Event()

        async def run() -> None:
            if load_state is not None and options.replay_endpoint is not None and not restored.is_set():
                await self._restore(slot, stream, sink, await load_state())
            restored.set()
            await stream.run()

        task = KeptTask(f"kv-events {replica}", run, stream.forget)
        self._listeners[replica] = _Listener(slot, model, stream, sink, task, restored)
        self._served[model] += 1
        return slot

    async def restored(self) -> None:
        """Returns when no stream is still loading what it had announced."""
        await asyncio.gather(*(each.restored.wait() for each in self._listeners.values()))

    @property
    def is_catching_up(self) -> bool:
        """Whether the buffer of a replica's earlier messages is being read."""
        return any(each.stream.is_catching_up for each in self._listeners.values())

    def state(self, replica: str) -> StreamState | None:
        """A copy of what the replica announced so far; None while messages are missing. Takes milliseconds."""
        listener = self._listeners.get(replica)
        position = None if listener is None or not listener.restored.is_set() else listener.stream.position()
        if listener is None or position is None:
            return None
        frozen = self.index.frozen(listener.slot)
        return StreamState(
            next_seq=position[0],
            newest=position[1],
            group=listener.sink.group,
            block_tokens=listener.sink.block_tokens,
            adapters=tuple(listener.sink.adapters),
            hashes=frozen.hashes,
            keys=frozen.keys,
            copies=frozen.copies,
            order=partial(entries, frozen),
        )

    async def _restore(self, slot: int, stream: ZmqStream, sink: ReplicaSink, state: StreamState | None) -> None:
        if state is None:
            return
        hashes, keys, copies = state.ordered()
        for first in range(0, len(hashes), RESTORED_AT_ONCE):
            part = slice(first, first + RESTORED_AT_ONCE)
            self.index.restore(slot, hashes[part], keys[part], copies[part])
            await asyncio.sleep(0)
        sink.resume(state.group, state.block_tokens, state.adapters)
        stream.resume(state.next_seq, state.newest)

    async def remove(self, replica: str) -> None:
        """Stop following a replica and drop its blocks."""
        listener = self._listeners.pop(replica, None)
        if listener is None:
            return
        self._served[listener.model] -= 1
        await listener.task.stop()
        self.index.remove_slot(listener.slot)

    async def close(self) -> None:
        for replica in list(self._listeners):
            await self.remove(replica)
        self._context.destroy(linger=0)

    def slot(self, replica: str) -> int | None:
        listener = self._listeners.get(replica)
        return None if listener is None else listener.slot

    def resolve(self, model: str | None, lora: str | None) -> tuple[str, str | None]:
        """(model, adapter) as events name them. A client gives an adapter in addition to the model or instead of it."""
        name = model or ANY_MODEL
        if lora is None and name in self._adapters:
            return self._adapters[name], name
        return name if self._served[name] else ANY_MODEL, lora

    def request_root(self, model: str | None, salt: str | None, lora: str | None = None) -> int:
        """The key that a request's first block chains from."""
        served, adapter = self.resolve(model, lora)
        return root_key(served, salt, adapter)

    def statuses(self) -> Sequence[StreamStatus]:
        return [
            StreamStatus(
                replica=replica,
                slot=one.slot,
                connected=one.stream.connected,
                next_seq=one.stream.next_seq,
                blocks=self.index.blocks(one.slot),
                block_tokens=one.sink.block_tokens,
                stream=one.stream.counters,
                applied=one.sink.counters,
                deaths=one.task.deaths,
            )
            for replica, one in self._listeners.items()
        ]
