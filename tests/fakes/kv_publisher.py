"""An engine as the event stream sees it: a block pool that knows its own truth, vLLM's publisher protocol on real
sockets, and a link that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Sequence
from typing import Self

import zmq
import zmq.asyncio
from tests.waiting import until, wait_until

from sembase.ordered_stream import END, SEQUENCE_BYTES
from semgate.events.wire import AllBlocksCleared, BlockRemoved, BlockStored, WireEvent, encode_batch

BLOCK = 4


def _is_bound(socket: zmq.asyncio.Socket, endpoint: str | None) -> bool:
    """False while the previous publisher's port has not been released yet."""
    try:
        socket.bind(endpoint or "tcp://127.0.0.1:0")
    except zmq.ZMQError:
        return False
    return True


class KvPublisher:
    """PUB and replay ROUTER on loopback; numbers from 0. Messages may be lost, repeated or sent out of order."""

    def __init__(
        self, *, buffer_messages: int = 10_000, endpoint: str | None = None, replay: str | None = None
    ) -> None:
        self._context = zmq.asyncio.Context()
        self._pub = self._bound(zmq.XPUB, endpoint)  # a PUB that reports subscriptions
        self._router = self._bound(zmq.ROUTER, replay)
        self.endpoint = self._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay_endpoint = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self.buffer: deque[tuple[int, bytes]] = deque(maxlen=buffer_messages)
        self.next_seq = 0
        self.replays = 0
        self.answers_replays = asyncio.Event()
        self.answers_replays.set()
        self._serving = asyncio.create_task(self._serve_replays())

    def _bound(self, kind: int, endpoint: str | None) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        if kind == zmq.XPUB:  # report every subscriber, also while the previous one has not left yet
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        wait_until(lambda: _is_bound(socket, endpoint), f"{endpoint} stayed in use")
        return socket

    async def publish(self, events: Sequence[WireEvent], *, lost: bool = False) -> int:
        return await self.publish_payload(encode_batch(time.time(), events), lost=lost)

    async def publish_payload(self, payload: bytes, *, lost: bool = False) -> int:
        seq = self.next_seq
        self.next_seq += 1
        self.buffer.append((seq, payload))
        if not lost:
            await self.send(seq, payload)
        return seq

    async def send(self, seq: int, payload: bytes) -> None:
        await self._pub.send_multipart((b"", seq.to_bytes(SEQUENCE_BYTES, "big"), payload))

    async def subscribed(self) -> None:
        """Waits for a subscriber, which receives everything sent from here on."""
        while (await self._pub.recv())[:1] != b"\x01":  # the other value reports an unsubscription
            pass

    async def send_frames(self, *frames: bytes) -> None:
        await self._pub.send_multipart(frames)

    async def _serve_replays(self) -> None:
        while True:
            client, _, first = await self._router.recv_multipart()
            self.replays += 1
            await self.answers_replays.wait()
            for seq, payload in list(self.buffer):
                if seq >= int.from_bytes(first, "big"):
                    await self._router.send_multipart((client, b"", b"", seq.to_bytes(SEQUENCE_BYTES, "big"), payload))
            await self._router.send_multipart((client, b"", b"", END, b""))

    async def close(self) -> None:
        self._serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._serving
        self._pub.close()
        self._router.close()
        self._context.term()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class EnginePool:
    """What an engine holds: chains of blocks by a hash of their whole prefix. Events tell of every change."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.held: dict[int, tuple[int, ...]] = {}  # hash -> the whole prefix

    def hash_of(self, prefix: Sequence[int]) -> int:
        return hash((17, *prefix)) & (2**64 - 1)

    def store(self, tokens: Sequence[int]) -> list[WireEvent]:
        """A prompt is computed: what it lacks beyond the held prefix is stored."""
        count = len(tokens) // BLOCK
        known = 0
        while known < count and self.hash_of(tokens[: (known + 1) * BLOCK]) in self.held:
            known += 1
        prefixes = [tuple(tokens[: (block + 1) * BLOCK]) for block in range(known, count)]
        if not prefixes:
            return []
        hashes = [self.hash_of(prefix) for prefix in prefixes]
        fresh = [(hash_, prefix) for hash_, prefix in zip(hashes, prefixes, strict=True) if hash_ not in self.held]
        self.held.update(fresh)
        # only a chain that is new to its end is stored in one event; a middle that comes back is stored alone
        last = len(fresh) if [hash_ for hash_, _ in fresh] == hashes[: len(fresh)] else 1
        parent = self.hash_of(tokens[: known * BLOCK]) if known else None
        stored = list(tokens[known * BLOCK : (known + last) * BLOCK])
        events: list[WireEvent] = [BlockStored(list(hashes[:last]), parent, stored, BLOCK, medium="GPU")]
        for hash_, prefix in fresh[last:]:
            above = self.hash_of(prefix[:-BLOCK])
            events.append(BlockStored([hash_], above, list(prefix[-BLOCK:]), BLOCK, medium="GPU"))
        return events

    def evict(self, count: int = 1) -> list[WireEvent]:
        gone = self.random.sample(sorted(self.held), min(count, len(self.held)))
        for hash_ in gone:
            del self.held[hash_]
        return [BlockRemoved(list(gone), medium="GPU")] if gone else []

    def clear(self) -> list[WireEvent]:
        self.held.clear()
        return [AllBlocksCleared()]

    def step(self) -> list[WireEvent]:
        """Something that happens to an engine: prompts of a small world arrive, memory runs out."""
        if self.random.random() < 0.3:
            return self.evict(self.random.randint(1, 3))
        depth = self.random.randint(1, 6) * BLOCK
        return self.store([self.random.randint(0, 1) for _ in range(depth)])


class CuttableLink:
    """A TCP address that leads to a publisher until it is cut, and again after it is restored."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self._to = (host, int(port))
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    async def restore(self) -> None:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Accepts no more connections and closes the open ones at once."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await until(lambda: not self._writers)
        await self._server.wait_closed()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._carry(reader, there_writer), self._carry(there_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)

    async def __aenter__(self) -> Self:
        await self.restore()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()
