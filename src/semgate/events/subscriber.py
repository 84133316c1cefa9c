"""One replica's event stream: sockets in, every message once and in order out, or a word that the state is lost.

A gap is filled from the publisher's replay buffer. What the buffer no longer holds, and a publisher that started again,
reset the sink, which then gets all that the buffer has. Called by ``feed`` and by the donor subscriber.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from sembase.errors import ConfigurationError
from semgate.events.replay import SEQ_BYTES, Message, ReplayError, replay
from semgate.events.sequence import SequencePosition
from semgate.events.wire import published_s

ResetReason = Literal["restart", "gap"]
Standing = Literal["level", "restart", "gap"]
SLICE_SECONDS: Final = 0.001
REPLAY_ROUNDS: Final = 32
GAP_QUESTIONS: Final = 3
GAP_PAUSE_SECONDS: Final = 0.02
HEARTBEAT_MS: Final = 5_000
RECONNECT_MS: Final = 100
LONGEST_RECONNECT_MS: Final = 2_000
_ENDPOINT: Final = re.compile(r"tcp://[^\s/*]+:[1-9]\d{0,4}|(ipc|inproc)://\S+")


class Sink(Protocol):
    """Where messages go. Neither method may raise."""

    def deliver(self, payload: bytes) -> None: ...

    def reset(self, reason: ResetReason) -> None: ...


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """``check_seconds`` of silence, and a look at the replay buffer shows whether the last messages got lost.

    Without a replay endpoint, ``reorder_seconds`` and ``reorder_messages`` say how long a gap may wait to be filled.
    ``receive_messages`` bounds what waits unread; beyond it ZeroMQ drops, which shows as a gap.
    """

    endpoint: str
    replay_endpoint: str | None = None
    topic: str = ""
    replay_timeout_seconds: float = 5.0
    check_seconds: float = 10.0
    reorder_seconds: float = 0.2
    reorder_messages: int = 16
    receive_messages: int = 20_000

    def __post_init__(self) -> None:
        for endpoint in (self.endpoint, self.replay_endpoint):
            if endpoint is not None and _ENDPOINT.fullmatch(endpoint) is None:
                raise ConfigurationError(f"'{endpoint}' is no event endpoint; write it like tcp://10.0.0.7:5557")


@dataclass(slots=True)
class StreamCounters:
    """``joined_late``: began behind messages that nobody could give us. ``resyncs`` counts resets for a lost gap."""

    messages: int = 0
    replayed: int = 0
    duplicates: int = 0
    gaps: int = 0
    resyncs: int = 0
    restarts: int = 0
    joined_late: int = 0
    replay_failures: int = 0
    malformed_frames: int = 0
    connects: int = 0


class EventStream:
    """``run()`` until cancelled. Reading stops for the loop's other work after a millisecond."""

    def __init__(
        self,
        context: zmq.asyncio.Context,
        options: StreamOptions,
        sink: Sink,
        *,
        stamp: Callable[[bytes], float | None] = published_s,
    ) -> None:
        self.counters = StreamCounters()
        self.connected = False
        self._context = context
        self._options = options
        self._sink = sink
        self._position = SequencePosition(stamp)
        self._held_back: dict[int, bytes] = {}
        self._held_until = 0.0
        self._no_replay_before = 0.0
        self._slice_ends = 0.0

    @property
    def next_seq(self) -> int | None:
        return self._position.next_seq

    async def run(self) -> None:
        socket = self._context.socket(zmq.SUB)
        try:
            self._set_up(socket)
            await self._follow(socket)
        finally:
            self.connected = False
            socket.close()

    def forget(self) -> None:
        """``run`` ended by itself: whatever the sink holds may be wrong, and the next run begins anew."""
        self._reset("restart")

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
                ready = dict(await poller.poll(self._wait_ms()))
                # A new connection comes before its messages: whether it is the old publisher must be known first.
                if monitor in ready:
                    await self._on_connection((await recv_monitor_message(monitor))["event"])
                elif socket in ready:
                    while await self._read(messages) and not connections.poll(0):
                        pass
                else:
                    await self._on_silence()
        finally:
            socket.disable_monitor()
            monitor.close()

    def _set_up(self, socket: zmq.asyncio.Socket) -> None:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVHWM, self._options.receive_messages)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, LONGEST_RECONNECT_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)
        socket.setsockopt(zmq.IPV6, "[" in self._options.endpoint)
        socket.setsockopt(zmq.SUBSCRIBE, self._options.topic.encode())

    def _wait_ms(self) -> int:
        seconds = self._options.check_seconds
        if self._held_back:
            seconds = min(seconds, max(0.0, self._held_until - time.monotonic()))
        return round(seconds * 1000)

    async def _on_connection(self, event: int) -> None:
        self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if self.connected:
            self.counters.connects += 1
            self._no_replay_before = 0.0
            # Nobody can say whether it is the same publisher that we knew, and its numbers may happen to go on.
            if self._options.replay_endpoint is None and self._knows_something():
                self._reset("restart")
            await self._level()

    def _knows_something(self) -> bool:
        return self.next_seq is not None or bool(self._held_back)

    async def _on_silence(self) -> None:
        if self._held_back:
            await self._give_up_gap()
        elif self.connected:
            await self._level()

    async def _read(self, socket: zmq.Socket[bytes]) -> bool:
        """Everything that waits, or a millisecond of it; whether there may be more."""
        self._slice_ends = time.monotonic() + SLICE_SECONDS
        while time.monotonic() < self._slice_ends:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return False
            if len(frames) != 3 or len(frames[1]) != SEQ_BYTES:
                self.counters.malformed_frames += 1
                continue
            await self._on_message(Message(int.from_bytes(frames[1], "big"), frames[2]))
        await asyncio.sleep(0)
        return True

    async def _on_message(self, message: Message) -> None:
        verdict = self._position.judge(*message)
        if verdict == "next":
            self._take(message)
            self._take_held_back()
        elif verdict == "duplicate":
            self.counters.duplicates += 1
        elif verdict == "first":
            await self._level()
            self._take_from_here(message)
        elif verdict == "restart":
            await self._start_over("restart")
            self._take_from_here(message)
        else:
            await self._on_gap(message)

    async def _on_gap(self, message: Message) -> None:
        self.counters.gaps += not self._held_back
        if self._may_replay():
            for _ in range(GAP_QUESTIONS):
                await self._level()
                if self._position.judge(*message) != "gap":
                    break
                await asyncio.sleep(GAP_PAUSE_SECONDS)  # some publishers send first and buffer a moment later
            self._take_from_here(message)
            return
        if not self._held_back:
            self._held_until = time.monotonic() + self._options.reorder_seconds
        self._held_back[message.seq] = message.payload
        if len(self._held_back) >= self._options.reorder_messages:
            await self._give_up_gap()

    def _take_held_back(self) -> None:
        while self._held_back and self.next_seq in self._held_back:
            seq = self.next_seq
            self._take(Message(seq, self._held_back.pop(seq)))

    async def _give_up_gap(self) -> None:
        """What was missing does not come any more; go on behind it, from an empty state."""
        waiting = sorted(self._held_back.items())
        self._held_back.clear()
        for seq, payload in waiting:
            self._take_from_here(Message(seq, payload))
        await asyncio.sleep(0)

    def _take_from_here(self, message: Message) -> None:
        """Take a message after all was done to get those before it; if some are missing still, they are lost."""
        verdict = self._position.judge(*message)
        if verdict in ("gap", "restart"):
            self._reset("gap" if verdict == "gap" else "restart")
            verdict = "first"
        if verdict == "duplicate":
            return
        if verdict == "first" and message.seq > 0:
            self.counters.joined_late += 1
        self._take(message)

    def _take(self, message: Message) -> None:
        self.counters.messages += 1
        self._position.take(*message)
        self._sink.deliver(message.payload)

    def _reset(self, reason: ResetReason) -> None:
        if reason == "gap":
            self.counters.resyncs += 1
        else:
            self.counters.restarts += 1
        self._position.forget()
        self._held_back.clear()
        self._sink.reset(reason)

    async def _start_over(self, reason: ResetReason) -> None:
        self._reset(reason)
        await self._level()

    def _may_replay(self) -> bool:
        return self._options.replay_endpoint is not None and time.monotonic() >= self._no_replay_before

    async def _level(self) -> None:
        """Bring the sink up to what the publisher has buffered; afterwards ``next_seq`` is the publisher's next."""
        if not self._may_replay():
            return
        try:
            standing = await self._catch_up()
            if standing != "level":
                self._reset(standing)
                await self._catch_up()
        except ReplayError:
            self.counters.replay_failures += 1
            # Live messages go on meanwhile; a publisher that does not answer must not hold up every one of them.
            self._no_replay_before = time.monotonic() + self._options.check_seconds

    async def _catch_up(self) -> Standing:
        """Replay from the last message taken, which must come back as it was, until nothing is missing in between."""
        for _ in range(REPLAY_ROUNDS):
            taken = self.counters.replayed
            standing = await self._replay_once()
            if standing != "gap" or taken == self.counters.replayed:
                return standing
        return "gap"

    async def _replay_once(self) -> Standing:
        assert self._options.replay_endpoint is not None
        anchor = (self.next_seq or 0) - 1
        timeout = self._options.replay_timeout_seconds
        answers = replay(self._context, self._options.replay_endpoint, max(anchor, 0), timeout_seconds=timeout)
        try:
            async for message in answers:
                if anchor >= 0:
                    if message.seq != anchor or not self._position.is_known(*message):
                        return "gap" if message.seq > anchor else "restart"
                    anchor = -1
                    continue
                if self.next_seq is None and message.seq > 0:
                    self.counters.joined_late += 1
                if self.next_seq not in (None, message.seq):
                    return "gap"
                self._take(message)
                self.counters.replayed += 1
                await self._breathe()
        finally:
            await answers.aclose()
        if anchor >= 0:
            return "restart"
        if self.next_seq is None:
            self._position.begin(0)
        return "level"

    async def _breathe(self) -> None:
        if time.monotonic() >= self._slice_ends:
            await asyncio.sleep(0)
            self._slice_ends = time.monotonic() + SLICE_SECONDS
