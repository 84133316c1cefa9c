"""One publisher's messages in order: numbered payloads and a way to replay them in, each message once, in order out.

A gap is filled from the publisher's replay buffer. If the buffer no longer holds the missing messages, or the publisher
restarted, the sink is reset and then receives everything the buffer has. Knows no transport: sockets feed it
(``zmq_stream``). Remembers a fingerprint of the last 1,024 messages, 100 bytes each.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

ResetReason = Literal["restart", "gap"]
Verdict = Literal["first", "next", "duplicate", "gap", "restart"]
_Level = Literal["level", "restart", "gap"]
SEQUENCE_BYTES: Final = 8  # of a number on the wire, big-endian
END: Final = (-1).to_bytes(SEQUENCE_BYTES, "big", signed=True)  # the number that ends a replay
REMEMBERED: Final = 1024
SLICE_SECONDS: Final = 0.001
REPLAY_ROUNDS: Final = 32
GAP_REPLAYS: Final = 3
GAP_PAUSE_SECONDS: Final = 0.02
MAX_BACKOFF: Final = 32

T = TypeVar("T")


class Message(NamedTuple):
    seq: int
    payload: bytes


class ReplayError(Exception):
    """The publisher did not answer in time, or in an unknown form."""


class Sink(Protocol):
    """Where messages go. Neither method may raise. ``deliver`` may let other tasks run before it has applied all of a
    message; the next message comes after it returns."""

    async def deliver(self, payload: bytes) -> None: ...

    def reset(self, reason: ResetReason) -> None: ...


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """The same items; after each millisecond of work on them the loop's other tasks run."""
    slice_ends = time.monotonic() + SLICE_SECONDS
    for item in items:
        yield item
        if time.monotonic() >= slice_ends:
            await asyncio.sleep(0)
            slice_ends = time.monotonic() + SLICE_SECONDS


@dataclass(slots=True)
class StreamCounters:
    """``joined_late``: began after messages that no replay returned. ``resyncs`` counts resets after lost messages."""

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


class SequencePosition:
    """Classifies messages by their number. A known number with other content means that the publisher restarted.

    ``stamp`` reads the publisher's time from a payload; it decides about numbers older than the remembered ones.
    """

    def __init__(self, stamp: Callable[[bytes], float | None]) -> None:
        self.next_seq: int | None = None
        self._stamp = stamp
        self._newest: bytes = b""
        self._remembered: list[tuple[int, int]] = [(-1, 0)] * REMEMBERED
        self._resumed: tuple[int, bytes] | None = None  # number and digest of the last message before a restart of ours

    def forget(self) -> None:
        """Forget all messages; the next one is the first."""
        self.next_seq = None
        self._resumed = None
        self._remembered = [(-1, 0)] * REMEMBERED

    def begin(self, seq: int) -> None:
        self.next_seq = seq

    def resume(self, next_seq: int, newest: bytes) -> None:
        """Continue after a message whose ``message_digest`` is known."""
        self.next_seq = next_seq
        self._resumed = (next_seq - 1, newest)

    def newest_digest(self) -> bytes:
        """Of message ``next_seq`` - 1."""
        if self._resumed is not None and self.next_seq == self._resumed[0] + 1:
            return self._resumed[1]
        return message_digest(self._newest)

    def judge(self, seq: int, payload: bytes) -> Verdict:
        if self.next_seq is None:
            return "first"
        if seq == self.next_seq:
            return "next"
        if seq > self.next_seq:
            return "gap"
        return "duplicate" if self.is_known(seq, payload) else "restart"

    def is_known(self, seq: int, payload: bytes) -> bool:
        """Whether this message was taken before, as far as fingerprints and times show."""
        if self.next_seq is None or seq >= self.next_seq:
            return False
        if self._resumed is not None and seq == self._resumed[0]:
            return self._resumed[1] == message_digest(payload)
        remembered_seq, fingerprint = self._remembered[seq % REMEMBERED]
        if remembered_seq == seq:
            return fingerprint == hash(payload)
        then, newest = self._stamp(payload), self._stamp(self._newest)
        return then is None or newest is None or then <= newest

    def take(self, seq: int, payload: bytes) -> None:
        self._remembered[seq % REMEMBERED] = (seq, hash(payload))
        self._newest = payload
        self.next_seq = seq + 1


def message_digest(payload: bytes) -> bytes:
    """The same in every process, unlike ``hash``."""
    return hashlib.blake2b(payload, digest_size=16).digest()


class OrderedStream:
    """``receive`` each message as it arrives.

    ``replay`` yields what the publisher has buffered from a number on, or raises ``ReplayError``. Without it,
    ``reorder_seconds`` and ``reorder_messages`` bound how long a gap may wait to be filled by late messages. A message
    for which ``is_snapshot`` holds repeats the publisher's whole state: whatever was missed before it does not matter.
    After a gap whose replay failed, or a start without a snapshot from a publisher that sends them, the replay is
    requested again, first after ``check_seconds``, then less often.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        stamp: Callable[[bytes], float | None],
        replay: Callable[[int], AsyncGenerator[Message, None]] | None = None,
        is_snapshot: Callable[[bytes], bool] | None = None,
        check_seconds: float = 10.0,
        reorder_seconds: float = 0.2,
        reorder_messages: int = 16,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counters = StreamCounters()
        self.is_incomplete = False  # messages are missing that a later replay may still give
        self.is_catching_up = False  # a replay is being read
        self._is_delivering = False  # the sink has applied a part of the newest message
        self._sink = sink
        self._position = SequencePosition(stamp)
        self._replay = replay
        self._is_snapshot = is_snapshot
        self._lacks_start = False  # what was taken does not begin with a snapshot, though the publisher sends them
        self._check_seconds = check_seconds
        self._reorder_seconds = reorder_seconds
        self._reorder_messages = reorder_messages
        self._clock = clock
        self._held_back: dict[int, bytes] = {}
        self._held_until = 0.0
        self._no_replay_before = 0.0
        self._failures = 0  # replays that left messages missing since the last one that did not
        self._slice_ends = 0.0

    @property
    def next_seq(self) -> int | None:
        return self._position.next_seq

    def position(self) -> tuple[int, bytes] | None:
        """The next number and the digest of the message before it. None before the first, while some are missing, and
        while the sink applies one."""
        if not self.next_seq or self.is_incomplete or self._held_back or self._is_delivering:
            return None
        return self.next_seq, self._position.newest_digest()

    def resume(self, next_seq: int, newest: bytes) -> None:
        """Continue from a ``position``: the sink holds the state of that moment. Needs ``replay``, which shows whether
        it is still the same publisher."""
        self._position.resume(next_seq, newest)

    @property
    def is_holding(self) -> bool:
        """Whether messages after a gap wait for it to be filled; call ``on_silence`` after ``wait_seconds``."""
        return bool(self._held_back)

    def wait_seconds(self) -> float:
        """How long to wait for the next message before calling ``on_silence``."""
        if not self._held_back:
            return self._check_seconds
        return min(self._check_seconds, max(0.0, self._held_until - self._clock()))

    async def _take_directly(self, message: Message) -> bool:
        """Take a message that needs no replay: the next, a duplicate or a snapshot."""
        verdict = self._position.judge(*message)
        if verdict == "duplicate":
            self.counters.duplicates += 1
            return True
        if verdict == "restart":
            return False
        is_snapshot = self._is_snapshot if verdict != "next" or self.is_incomplete else None
        if is_snapshot is not None and is_snapshot(message.payload):
            self.counters.gaps += verdict == "gap"
            self._mark_complete()
            self._held_back = {seq: payload for seq, payload in self._held_back.items() if seq > message.seq}
        elif verdict != "next" or (self.is_incomplete and self._may_replay()):
            return False
        await self._take(message)
        await self._take_held_back()
        return True

    async def receive(self, message: Message) -> None:
        if await self._take_directly(message):
            return
        verdict = self._position.judge(*message)
        if verdict == "gap" and not (self.is_incomplete and self._may_replay()):
            await self._on_gap(message)
            return
        if verdict == "restart":
            self._reset("restart")
        await self.catch_up()
        await self._take_from_here(message)

    async def on_connection(self) -> None:
        """A new connection: whether it is the same publisher must be known before its messages are read."""
        self._no_replay_before = 0.0
        if self._replay is None and (self.next_seq is not None or self._held_back):
            self._reset("restart")  # it may be another publisher whose numbers happen to continue ours
        await self.catch_up()

    async def on_silence(self) -> None:
        """No message came for ``wait_seconds``: give up a gap, or check whether the last messages were lost."""
        if self._held_back:
            await self._give_up_gap()
        else:
            await self.catch_up()

    def forget(self) -> None:
        """Whatever the sink holds may be wrong; start again from an empty state."""
        self._reset("restart")

    async def catch_up(self) -> None:
        """Bring the sink up to what the publisher has buffered; afterwards ``next_seq`` is the publisher's next."""
        if not self._may_replay():
            return
        self.is_catching_up = True
        try:
            level = await self._replay_all()
            if level != "level":
                self._reset(level)
                await self._replay_all()
        except ReplayError:
            self.counters.replay_failures += 1
            self._delay_replay()
        else:
            self.is_incomplete = self._lacks_start
            if self.is_incomplete:
                self._delay_replay()
            else:
                self._failures = 0
        finally:
            self.is_catching_up = False

    def _delay_replay(self) -> None:
        """Live messages continue meanwhile; a publisher that gives nothing must not delay each of them."""
        backoff = min(1 << self._failures, MAX_BACKOFF) if self.is_incomplete else 1
        self._no_replay_before = self._clock() + backoff * self._check_seconds
        self._failures += 1

    def _mark_complete(self) -> None:
        if self.is_incomplete:
            self.is_incomplete = False
            self._failures = 0
            self._no_replay_before = 0.0

    async def _on_gap(self, message: Message) -> None:
        self.counters.gaps += not self._held_back
        if self._may_replay():
            for _ in range(GAP_REPLAYS):
                await self.catch_up()
                if self._position.judge(*message) != "gap":
                    break
                await asyncio.sleep(GAP_PAUSE_SECONDS)  # some publishers send first and buffer a moment later
            await self._take_from_here(message)
            return
        if not self._held_back:
            self._held_until = self._clock() + self._reorder_seconds
        self._held_back[message.seq] = message.payload
        if len(self._held_back) >= self._reorder_messages:
            await self._give_up_gap()

    async def _take_held_back(self) -> None:
        while self._held_back and self.next_seq in self._held_back:
            seq = self.next_seq
            await self._take(Message(seq, self._held_back.pop(seq)))

    async def _give_up_gap(self) -> None:
        """The missing messages did not come; continue after them, from an empty state."""
        waiting = sorted(self._held_back.items())
        self._held_back.clear()
        for seq, payload in waiting:
            await self._take_from_here(Message(seq, payload))
        await asyncio.sleep(0)

    async def _take_from_here(self, message: Message) -> None:
        """Take a message after every attempt to get those before it; any that are still missing are lost."""
        verdict = self._position.judge(*message)
        if verdict in ("gap", "restart"):
            self._reset("gap" if verdict == "gap" else "restart")
            verdict = "first"
        if verdict == "duplicate":
            return
        if verdict == "first" and message.seq > 0:
            self.counters.joined_late += 1
            self.is_incomplete = self._failures > 0  # no replay gave the messages before this one
        await self._take(message)

    async def _take(self, message: Message) -> None:
        if self._is_snapshot is not None and (self.next_seq is None or self._lacks_start):
            self._lacks_start = not self._is_snapshot(message.payload)
        self.counters.messages += 1
        self._position.take(*message)
        self._is_delivering = True
        try:
            await self._sink.deliver(message.payload)
        finally:
            self._is_delivering = False

    def _reset(self, reason: ResetReason) -> None:
        if reason == "gap":
            self.counters.resyncs += 1
        else:
            self.counters.restarts += 1
        self.is_incomplete = self._lacks_start = False
        self._position.forget()
        self._held_back.clear()
        self._sink.reset(reason)

    def _may_replay(self) -> bool:
        return self._replay is not None and self._clock() >= self._no_replay_before

    async def _replay_all(self) -> _Level:
        """Replay from the last message taken, which must come back unchanged, until nothing is missing in between."""
        for _ in range(REPLAY_ROUNDS):
            taken = self.counters.replayed
            level = await self._replay_once()
            if level != "gap" or taken == self.counters.replayed:
                return level
        return "gap"

    async def _replay_once(self) -> _Level:
        assert self._replay is not None
        anchor = -1 if self.is_incomplete else (self.next_seq or 0) - 1
        answers = self._replay(max(anchor, 0))
        try:
            async for message in answers:
                if self.is_incomplete:
                    self._reset("gap")  # the publisher answers again: rebuild from all it has
                if anchor >= 0:
                    if message.seq != anchor or not self._position.is_known(*message):
                        return "gap" if message.seq > anchor else "restart"
                    anchor = -1
                    continue
                if self.next_seq is None and message.seq > 0:
                    self.counters.joined_late += 1
                if self.next_seq not in (None, message.seq):
                    return "gap"
                await self._take(message)
                self.counters.replayed += 1
                await self._yield_to_loop()
        finally:
            await answers.aclose()
        if anchor >= 0:
            return "restart"
        if self.next_seq is None:
            self._position.begin(0)
        return "level"

    async def _yield_to_loop(self) -> None:
        """After a millisecond of work, let the loop's other tasks run."""
        if time.monotonic() >= self._slice_ends:
            await asyncio.sleep(0)
            self._slice_ends = time.monotonic() + SLICE_SECONDS
