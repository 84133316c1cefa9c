"""All replicas' events into one index: replicas come and go, one task each; the router asks for slots and standing.

What waits unread is bounded per replica by ZeroMQ's own queue (``StreamOptions.receive_messages``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import zmq.asyncio

from semblend.errors import ConfigurationError
from semgate.events.apply import ApplyCounters, ReplicaSink
from semgate.events.subscriber import EventStream, StreamCounters, StreamOptions
from semgate.index.blocks import BlockIndex
from semgate.index.keys import root_key

ANY_MODEL: Final = ""
MOST_ADAPTERS: Final = 4096


@dataclass(frozen=True, slots=True)
class Standing:
    """How well we know one replica. ``next_seq`` is ``None`` before its first message or answer."""

    replica: str
    slot: int
    connected: bool
    next_seq: int | None
    blocks: int
    block_tokens: int | None
    stream: StreamCounters
    applied: ApplyCounters


@dataclass(frozen=True, slots=True)
class _Listener:
    slot: int
    model: str
    stream: EventStream
    sink: ReplicaSink
    task: asyncio.Task[None]


class EventFeed:
    """``add`` and ``remove`` inside the running loop; ``close`` ends all tasks and sockets."""

    def __init__(self, index: BlockIndex) -> None:
        self.index = index
        self._context = zmq.asyncio.Context()
        self._listeners: dict[str, _Listener] = {}
        self._adapters: dict[str, str] = {}

    def add(self, replica: str, options: StreamOptions, *, model: str = ANY_MODEL) -> int:
        """Start listening; the replica's slot. ``model`` only where replicas serve different ones."""
        if replica in self._listeners:
            raise ConfigurationError(f"replica {replica} is listened to already; remove it first")
        slot = self.index.add_slot()

        def on_adapter(name: str) -> None:
            if len(self._adapters) < MOST_ADAPTERS:
                self._adapters[name] = model

        sink = ReplicaSink(self.index, slot, model, on_adapter=on_adapter)
        stream = EventStream(self._context, options, sink)
        task = asyncio.create_task(stream.run(), name=f"kv-events {replica}")
        self._listeners[replica] = _Listener(slot, model, stream, sink, task)
        return slot

    async def remove(self, replica: str) -> None:
        """Stop listening and forget all that the replica held."""
        listener = self._listeners.pop(replica, None)
        if listener is None:
            return
        listener.task.cancel()
        await asyncio.gather(listener.task, return_exceptions=True)
        self.index.remove_slot(listener.slot)

    async def close(self) -> None:
        for replica in list(self._listeners):
            await self.remove(replica)
        self._context.destroy(linger=0)

    def slot(self, replica: str) -> int | None:
        listener = self._listeners.get(replica)
        return None if listener is None else listener.slot

    def request_root(self, model: str | None, salt: str | None) -> int:
        """Where the chain of a request begins. A client names an adapter in the place of the model."""
        name = model or ANY_MODEL
        if name in self._adapters:
            return root_key(self._adapters[name], salt, name)
        served = {listener.model for listener in self._listeners.values()}
        return root_key(name if name in served else ANY_MODEL, salt, None)

    def standings(self) -> Sequence[Standing]:
        return [
            Standing(
                replica=replica,
                slot=one.slot,
                connected=one.stream.connected,
                next_seq=one.stream.next_seq,
                blocks=self.index.blocks(one.slot),
                block_tokens=one.sink.block_tokens,
                stream=one.stream.counters,
                applied=one.sink.counters,
            )
            for replica, one in self._listeners.items()
        ]
