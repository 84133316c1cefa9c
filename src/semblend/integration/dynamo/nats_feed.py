"""All publishers on NATS into the provider: messages in order, replays where some are missing.

Runs on the router's loop. Publishers are named by their worker's instance id. At most ``MAX_PUBLISHERS`` are followed;
a new one replaces the one that was silent longest. At most ``MAX_REPLAYS`` replays are awaited at once. While one
publisher's replay is awaited only its own messages wait, bounded per publisher and in bytes over all publishers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Final

from sembase.errors import MissingDependencyError
from sembase.ordered_stream import END, SEQUENCE_BYTES, Message, OrderedStream, ReplayError
from semblend.contract.donor_event import DonorEventError
from semblend.donors.packing import is_snapshot, unframe
from semblend.integration.dynamo.nats_access import NatsAccess
from semblend.integration.dynamo.nats_subjects import (
    ALL_EVENTS,
    PUBLISHER_HEADER,
    REPLAY_OF_ALL,
    publisher_of,
    replay_subject,
)
from semblend.integration.dynamo.provider import SemanticEvidenceProvider, WorkerSink

try:
    import nats
    from nats.aio.client import Client as NatsClient
    from nats.aio.msg import Msg
except ImportError as error:
    raise MissingDependencyError(str(error.name), "dynamo", "donor events over NATS") from None

from sembase.event_batch import published_s

MAX_PUBLISHERS: Final = 4096
MAX_REPLAYS: Final = 64
MAX_REPLAY_MESSAGES: Final = 20_000
MAX_WAITING: Final = 256  # messages of one publisher
MAX_WAITING_BYTES: Final = 64 << 20  # of all publishers
CONNECT_S: Final = 5
START_S: Final = 15.0
REPLAY_S: Final = 5.0
DISCOVERY_S: Final = 1.0
NOTHING: Final = (1 << 64) - 1  # a replay from here on is empty: the publisher only shows that it exists


class ByteBudget:
    """Bytes on the wire of all waiting messages."""

    def __init__(self, max_bytes: int = MAX_WAITING_BYTES) -> None:
        self.used_bytes = 0
        self._max_bytes = max_bytes

    def take(self, size_bytes: int) -> bool:
        if self.used_bytes + size_bytes > self._max_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def give(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes


class Publisher:
    """One publisher's stream. A task exists only while messages wait or a replay or a gap holds them back."""

    def __init__(self, stream: OrderedStream, budget: ByteBudget) -> None:
        self.stream = stream
        self._budget = budget
        self._waiting: deque[Message] = deque()
        self._has_dropped = False
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return self._task is None

    def received(self, message: Message) -> None:
        if len(self._waiting) < MAX_WAITING and self._budget.take(len(message.payload)):
            self._waiting.append(message)
            self._arrived.set()
        else:
            self._has_dropped = True  # a replay will give it
        self.start()

    def start(self, *, catch_up: bool = False) -> asyncio.Task[None]:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(catch_up))
        return self._task

    def stop(self) -> asyncio.Task[None] | None:
        """Cancel the task, if there is one; the caller awaits it."""
        task = self._task
        if task is not None:
            task.cancel()
        while self._waiting:
            self._budget.give(len(self._waiting.popleft().payload))
        return task

    async def _work(self, catch_up: bool) -> None:
        try:
            if catch_up:
                await self.stream.catch_up()
            while self._waiting or self._has_dropped or self.stream.is_holding:
                if self._waiting:
                    message = self._waiting.popleft()
                    self._budget.give(len(message.payload))
                    await self.stream.receive(message)
                elif self._has_dropped:
                    self._has_dropped = False
                    await self.stream.catch_up()
                else:
                    await self._wait_for_gap()
        finally:
            self._task = None

    async def _wait_for_gap(self) -> None:
        self._arrived.clear()
        try:
            async with asyncio.timeout(self.stream.wait_seconds()):
                await self._arrived.wait()
        except TimeoutError:
            await self.stream.on_silence()


class NatsDonorFeed:
    """``malformed`` messages were left out. ``dropped`` publishers made room; their next message brings them back."""

    def __init__(self, url: str, provider: SemanticEvidenceProvider, access: NatsAccess | None = None) -> None:
        self._access = access or NatsAccess()
        self.dropped = 0
        self._malformed_frames = 0
        self._url = url
        self._provider = provider
        self._publishers: OrderedDict[int, Publisher] = OrderedDict()  # the most recently active is last
        self._sinks: dict[int, WorkerSink] = {}
        self._budget = ByteBudget()
        self._replays = asyncio.Semaphore(MAX_REPLAYS)
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._client: Any = None

    @property
    def malformed(self) -> int:
        """Of the publishers that are followed now."""
        return self._malformed_frames + sum(sink.malformed for sink in self._sinks.values())

    async def start(self) -> None:
        """Follow all publishers, and request what those that are silent now announced before. Raises
        ``ConnectionError`` if no server answers within ``START_S``; one that is lost later is awaited for ever."""
        client, options = NatsClient(), self._access.options()
        try:
            async with asyncio.timeout(START_S):
                await client.connect(
                    self._url, connect_timeout=CONNECT_S, max_reconnect_attempts=-1, error_cb=_ignore, **options
                )
        except TimeoutError:
            await client.close()
            raise ConnectionError(f"no NATS server answered within {START_S:g} s; check its URL") from None
        self._client = client
        await self._client.subscribe(ALL_EVENTS, cb=self._received)
        await self._client.flush()
        found = await self._discover()
        await asyncio.gather(*(self._follow(worker_id).start(catch_up=True) for worker_id in found))

    async def close(self) -> None:
        """What is known of the workers stays with the provider."""
        self._is_closing = True  # no new replay while the old ones end
        for publisher in self._publishers.values():
            self._end(publisher)
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def stream_of(self, worker_id: int) -> OrderedStream | None:
        publisher = self._publishers.get(worker_id)
        return None if publisher is None else publisher.stream

    def leave(self, worker_id: int) -> None:
        """The worker is gone, and its donors with it."""
        if (publisher := self._publishers.pop(worker_id, None)) is not None:
            self._end(publisher)
        self._sinks.pop(worker_id, None)
        self._provider.forget(worker_id)

    def _end(self, publisher: Publisher) -> None:
        if (task := publisher.stop()) is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _received(self, message: Msg) -> None:
        """Waits for no publisher: the messages of all come through this one subscription."""
        publisher = publisher_of(message.subject)
        if not publisher.isdecimal():
            self._malformed_frames += 1
        elif not self._is_closing and (read := self._unframed(message.data)) is not None:
            self._follow(int(publisher)).received(read)
        await asyncio.sleep(0)  # the publisher's task takes it

    def _unframed(self, data: bytes) -> Message | None:
        try:
            return Message(*unframe(data))
        except DonorEventError:
            self._malformed_frames += 1
            return None

    def _follow(self, worker_id: int) -> Publisher:
        publisher = self._publishers.get(worker_id)
        if publisher is None:
            if len(self._publishers) >= MAX_PUBLISHERS:
                self.leave(next(iter(self._publishers)))
                self.dropped += 1
            sink = self._sinks[worker_id] = self._provider.sink(worker_id)
            replay = partial(self._replay, worker_id)
            stream = OrderedStream(
                sink, stamp=published_s, replay=replay, is_snapshot=is_snapshot, check_seconds=REPLAY_S
            )
            publisher = self._publishers[worker_id] = Publisher(stream, self._budget)
        self._publishers.move_to_end(worker_id)
        return publisher

    async def _replay(self, worker_id: int, start: int) -> AsyncGenerator[Message, None]:
        """What one publisher has buffered from ``start`` on; ``ReplayError`` unless its answer is complete."""
        async with self._replays:
            try:
                answers = await self._request(replay_subject(str(worker_id)), start)
                try:
                    for _ in range(MAX_REPLAY_MESSAGES):
                        message = await answers.next_msg(timeout=REPLAY_S)
                        if message.data == END:
                            return
                        if (read := self._unframed(message.data)) is not None:
                            yield read
                    raise ReplayError(f"the replay has more than {MAX_REPLAY_MESSAGES} messages")
                finally:
                    await answers.unsubscribe()
            except (TimeoutError, nats.errors.Error) as error:
                raise ReplayError(f"no complete answer from worker {worker_id}: {error}") from None

    async def _discover(self) -> list[int]:
        """The publishers that answer within ``DISCOVERY_S``."""
        found: dict[int, None] = {}
        answers = await self._request(REPLAY_OF_ALL, NOTHING)
        try:
            async with asyncio.timeout(DISCOVERY_S):
                while len(found) < MAX_PUBLISHERS:
                    message = await answers.next_msg(timeout=DISCOVERY_S)
                    publisher = (message.headers or {}).get(PUBLISHER_HEADER, "")
                    if message.data == END and publisher.isdecimal():
                        found[int(publisher)] = None
        except (TimeoutError, nats.errors.TimeoutError):
            pass  # those that answered are followed
        finally:
            await answers.unsubscribe()
        return list(found)

    async def _request(self, subject: str, start: int) -> Any:
        """The subscription to the answers of a replay request."""
        inbox = self._client.new_inbox()
        answers = await self._client.subscribe(inbox)
        await self._client.publish(subject, start.to_bytes(SEQUENCE_BYTES, "big"), reply=inbox)
        return answers


async def _ignore(_: Exception) -> None:
    """The client reconnects by itself; messages missed meanwhile show as a gap in the sequence."""
