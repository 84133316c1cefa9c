"""A publisher's event stream over ZeroMQ: endpoints in, every message once and in order to the sink, or a reset of it.

Frames and replay protocol are vLLM's, which SGLang shares: PUB sends ``[topic, seq, payload]``; a DEALER requests a
replay with ``["", seq]``, the ROUTER answers ``["", topic, seq, payload]`` for each buffered message and ends with -1.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from sembase.errors import ConfigurationError
from sembase.ordered_stream import (
    END,
    SEQUENCE_BYTES,
    SLICE_SECONDS,
    Message,
    OrderedStream,
    ReplayError,
    Sink,
    StreamCounters,
)
from sembase.zmq_curve import CurveClient

REPLAY_MESSAGES: Final = 20_000  # of an answer, unread; vLLM buffers 10,000 batches by default
MAX_SOCKETS: Final = 16_384  # three per publisher at most; ZeroMQ's own limit would be 1,023
# Of one frame; a larger one closes the connection and takes no memory. The largest honest message is SGLang's for a
# prompt of 128K in pages of one token, prefill not chunked: 131,072 events of 116 bytes, 15.2 MB. Others are far below:
# chunks of 8,192 make it 1.0 MB; vLLM with blocks of 16 writes 0.9 MB for 128K at once, 1.7 MB with an adapter and an
# image in every block, and 0.7 MB more for the blocks it evicts. ``event_batch`` bounds what a message may become.
MAX_MESSAGE_BYTES: Final = 16 << 20
HEARTBEAT_MS: Final = 5_000
RECONNECT_MS: Final = 100
MAX_RECONNECT_MS: Final = 2_000
_ENDPOINT: Final = re.compile(r"tcp://[^\s/*]+:[1-9]\d{0,4}|(ipc|inproc)://\S+")


def new_context() -> zmq.asyncio.Context:
    context = zmq.asyncio.Context()
    context.set(zmq.MAX_SOCKETS, min(MAX_SOCKETS, context.get(zmq.SOCKET_LIMIT)))
    return context


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """After ``check_seconds`` of silence a look at the replay buffer shows whether the last messages were lost.

    Without a replay endpoint, ``reorder_seconds`` and ``reorder_messages`` bound how long a gap may wait to be filled.
    ``receive_messages`` bounds the unread messages; beyond it ZeroMQ drops, which shows as a gap. With ``curve`` only
    the publisher with that key is read.
    """

    endpoint: str
    replay_endpoint: str | None = None
    topic: str = ""
    replay_timeout_seconds: float = 5.0
    check_seconds: float = 10.0
    reorder_seconds: float = 0.2
    reorder_messages: int = 16
    receive_messages: int = 20_000
    curve: CurveClient | None = None

    def __post_init__(self) -> None:
        for endpoint in (self.endpoint, self.replay_endpoint):
            if endpoint is not None and _ENDPOINT.fullmatch(endpoint) is None:
                raise ConfigurationError(
                    f"invalid event endpoint '{endpoint}' (expected an address such as tcp://10.0.0.7:5557)"
                )


async def request_replay(
    context: zmq.asyncio.Context, endpoint: str, timeout_seconds: float, curve: CurveClient | None, first_seq: int
) -> AsyncGenerator[Message, None]:
    """What the publisher has buffered from ``first_seq`` on. A slow reader may miss messages in between.

    Each request has its own socket: late answers to an earlier one can never mix in.
    """
    socket = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, REPLAY_MESSAGES)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        socket.setsockopt(zmq.IPV6, "[" in endpoint)
        if curve is not None:
            curve.apply(socket)
        socket.connect(endpoint)
        await socket.send_multipart((b"", first_seq.to_bytes(SEQUENCE_BYTES, "big")))
        arrived: zmq.Socket[bytes] = zmq.Socket.shadow(socket.underlying)
        while True:
            try:
                frames = arrived.recv_multipart(zmq.NOBLOCK)  # waiting for each would take eight times as long
            except zmq.Again:
                if not await socket.poll(timeout_seconds * 1000):
                    raise ReplayError(f"no answer from {endpoint} within {timeout_seconds:g} s") from None
                continue
            if len(frames) != 4 or len(frames[2]) != SEQUENCE_BYTES:
                raise ReplayError(f"malformed reply from {endpoint} ({len(frames)} frames)")
            if frames[2] == END:
                return
            yield Message(int.from_bytes(frames[2], "big"), frames[3])
    finally:
        socket.close()


class ZmqStream:
    """``run()`` until cancelled. After a millisecond of reading the loop's other tasks run."""

    def __init__(
        self,
        context: zmq.asyncio.Context,
        options: StreamOptions,
        sink: Sink,
        *,
        stamp: Callable[[bytes], float | None],
        is_snapshot: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.connected = False
        self._context = context
        self._options = options
        replay = None
        if options.replay_endpoint is not None:
            timeout_s = options.replay_timeout_seconds
            replay = partial(request_replay, context, options.replay_endpoint, timeout_s, options.curve)
        self._stream = OrderedStream(
            sink,
            stamp=stamp,
            replay=replay,
            is_snapshot=is_snapshot,
            check_seconds=options.check_seconds,
            reorder_seconds=options.reorder_seconds,
            reorder_messages=options.reorder_messages,
        )

    @property
    def counters(self) -> StreamCounters:
        return self._stream.counters

    @property
    def next_seq(self) -> int | None:
        return self._stream.next_seq

    @property
    def is_catching_up(self) -> bool:
        return self._stream.is_catching_up

    def position(self) -> tuple[int, bytes] | None:
        return self._stream.position()

    def resume(self, next_seq: int, newest: bytes) -> None:
        """Before ``run``. Needs a replay endpoint, which shows whether it is still the same publisher."""
        if self._options.replay_endpoint is not None:
            self._stream.resume(next_seq, newest)

    async def run(self) -> None:
        socket = self._context.socket(zmq.SUB)
        try:
            self._set_up(socket)
            await self._follow(socket)
        finally:
            self.connected = False
            socket.close()

    def forget(self) -> None:
        """``run`` ended by itself: the sink may be wrong, and the next run starts from an empty state."""
        self._stream.forget()

    async def _follow(self, socket: zmq.asyncio.Socket) -> None:
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        try:
            messages: zmq.Socket[bytes] = zmq.Socket.shadow(socket.underlying)
            connections: zmq.Socket[bytes] = zmq.Socket.shadow(monitor.underlying)
            poller = zmq.asyncio.Poller()
            poller.register(monitor, zmq.POLLIN)
            poller.register(socket, zmq.POLLIN)
            socket.connect(self._options.endpoint)
            while True:
                ready = dict(await poller.poll(round(self._stream.wait_seconds() * 1000)))
                # A new connection comes before its messages: whether it is the old publisher must be known first.
                if monitor in ready:
                    await self._on_connection((await recv_monitor_message(monitor))["event"])
                elif socket in ready:
                    while await self._read(messages) and not connections.poll(0):
                        pass
                elif self.connected or self._stream.is_holding:
                    await self._stream.on_silence()
                elif self.counters.connects:
                    # ZeroMQ reconnects by itself after a lost connection, but not after a message that was too large.
                    with suppress(zmq.ZMQError):  # the old connection may be gone already
                        socket.disconnect(self._options.endpoint)
                    socket.connect(self._options.endpoint)
        finally:
            socket.disable_monitor()
            monitor.close()

    def _set_up(self, socket: zmq.asyncio.Socket) -> None:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, self._options.receive_messages)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, MAX_RECONNECT_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)
        socket.setsockopt(zmq.IPV6, "[" in self._options.endpoint)
        socket.setsockopt(zmq.SUBSCRIBE, self._options.topic.encode())
        if self._options.curve is not None:
            self._options.curve.apply(socket)

    async def _on_connection(self, event: int) -> None:
        self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if self.connected:
            self.counters.connects += 1
            await self._stream.on_connection()

    async def _read(self, socket: zmq.Socket[bytes]) -> bool:
        """Receive waiting messages for at most a millisecond. Returns whether there may be more."""
        slice_ends = time.monotonic() + SLICE_SECONDS
        while time.monotonic() < slice_ends:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return False
            if len(frames) != 3 or len(frames[1]) != SEQUENCE_BYTES:
                self.counters.malformed_frames += 1
                continue
            await self._stream.receive(Message(int.from_bytes(frames[1], "big"), frames[2]))
        await asyncio.sleep(0)
        return True
