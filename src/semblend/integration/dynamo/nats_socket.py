"""Donor events over NATS: publishes the announcer's batches and answers replay requests from a bounded buffer.

Plain NATS, no JetStream: when a request wants more than the buffer holds, the announcer publishes its whole state
again. Used by the announcer's thread alone, which drives the client's loop; a buffered message takes about 0.7 bytes
per donor token.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from sembase.errors import MissingDependencyError
from sembase.ordered_stream import END, SEQUENCE_BYTES
from semblend.contract.donor_event import DonorBatch
from semblend.donors.packing import frame, pack
from semblend.integration.dynamo.nats_access import NatsAccess
from semblend.integration.dynamo.nats_subjects import (
    PUBLISHER_HEADER,
    REPLAY_OF_ALL,
    events_subject,
    replay_subject,
)
from semblend.integration.replay_buffer import ReplayBuffer

try:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
except ImportError as error:
    raise MissingDependencyError(str(error.name), "dynamo", "donor events over NATS") from None

CONNECT_S: Final = 5
FLUSH_S: Final = 2
REQUESTS_PER_TURN: Final = 8
_TURN_S: Final = 0.002
T = TypeVar("T")


class NatsSocket:
    """Connects at once and may raise the client's errors. ``too_large`` counts donors that fit into no message."""

    def __init__(self, url: str, publisher: str, buffer_batches: int, access: NatsAccess | None = None) -> None:
        self.too_large = 0
        self._publisher = publisher
        self._buffer = ReplayBuffer(buffer_batches)
        self._requests: deque[Msg] = deque(maxlen=1024)
        self._loop = asyncio.new_event_loop()
        try:
            self._client: Any = self._run(self._connect(url, (access or NatsAccess()).options()))
        except BaseException:
            self._loop.close()
            raise

    def publish(self, batch: DonorBatch) -> None:
        self._run(self._send(batch))

    def answer(self) -> bool:
        """Serve waiting replay requests. True if one of them wanted more than the buffer holds."""
        return self._run(self._repeat_all())

    def close(self) -> None:
        try:
            self._run(self._client.close())
        finally:
            self._loop.close()

    async def _connect(self, url: str, options: dict[str, Any]) -> Any:
        client = Client()
        try:
            async with asyncio.timeout(CONNECT_S):  # the client itself would retry forever
                await client.connect(url, max_reconnect_attempts=-1, error_cb=_ignore, **options)
        except BaseException:
            await client.close()
            raise
        for subject in (replay_subject(self._publisher), REPLAY_OF_ALL):
            await client.subscribe(subject, cb=self._requested)
        await client.flush(FLUSH_S)
        return client

    async def _requested(self, message: Msg) -> None:
        self._requests.append(message)

    async def _send(self, batch: DonorBatch) -> None:
        for payload in self._payloads(batch):
            await self._client.publish(events_subject(self._publisher), frame(self._buffer.add(payload), payload))
        await self._client.flush(FLUSH_S)

    def _payloads(self, batch: DonorBatch) -> list[bytes]:
        """The batch in messages within the server's limit; a single event above it is left out and counted."""
        payload = pack(batch)
        if len(payload) + SEQUENCE_BYTES <= self._client.max_payload:
            return [payload]
        if len(batch.events) <= 1:
            self.too_large += 1
            return []
        middle = len(batch.events) // 2
        parts = (batch.events[:middle], batch.events[middle:])
        return [
            payload for events in parts for payload in self._payloads(DonorBatch(batch.timestamp_s, events, batch.rank))
        ]

    async def _repeat_all(self) -> bool:
        await asyncio.sleep(_TURN_S)  # the client reads what has arrived
        lacks = False
        for _ in range(min(REQUESTS_PER_TURN, len(self._requests))):
            lacks |= await self._repeat(self._requests.popleft())
        return lacks

    async def _repeat(self, request: Msg) -> bool:
        if len(request.data) != SEQUENCE_BYTES or not request.reply:
            return False  # not a request of this protocol
        start = int.from_bytes(request.data, "big")
        headers = {PUBLISHER_HEADER: self._publisher}
        for sequence, payload in self._buffer.since(start):
            await self._client.publish(request.reply, frame(sequence, payload), headers=headers)
        await self._client.publish(request.reply, END, headers=headers)
        await self._client.flush(FLUSH_S)
        return self._buffer.lacks(start)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


async def _ignore(_: Exception) -> None:
    """Faults that matter are raised at the call; the client would only log the rest."""
