"""Donor events over NATS: the announcer's batches go out, and those who missed some are answered from a bounded buffer.

Plain NATS, no JetStream: what the buffer no longer holds, the announcer says again from what is true now. Used by the
announcer's thread alone, which drives the client's loop; a buffered message takes about 0.7 bytes per donor token.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from sembase.errors import MissingDependencyError
from semblend.contract.donor_event import DonorBatch
from semblend.donors.packing import END, SEQUENCE_BYTES, frame, pack
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
    """Connects at once and may raise what the client raises. ``too_large`` donors did not fit into a message."""

    def __init__(self, url: str, publisher: str, buffer_batches: int) -> None:
        self.too_large = 0
        self._publisher = publisher
        self._said = ReplayBuffer(buffer_batches)
        self._asked: deque[Msg] = deque(maxlen=1024)
        self._loop = asyncio.new_event_loop()
        try:
            self._client: Any = self._run(self._connect(url))
        except BaseException:
            self._loop.close()
            raise

    def publish(self, batch: DonorBatch) -> None:
        self._run(self._send(batch))

    def answer(self) -> bool:
        """Repeat for those who wait. True when somebody asked for more than the buffer holds."""
        return self._run(self._repeat_all())

    def close(self) -> None:
        try:
            self._run(self._client.close())
        finally:
            self._loop.close()

    async def _connect(self, url: str) -> Any:
        client = Client()
        try:
            async with asyncio.timeout(CONNECT_S):  # the client itself would try for ever
                await client.connect(url, max_reconnect_attempts=-1, error_cb=_ignore)
        except BaseException:
            await client.close()
            raise
        for subject in (replay_subject(self._publisher), REPLAY_OF_ALL):
            await client.subscribe(subject, cb=self._heard)
        await client.flush(FLUSH_S)
        return client

    async def _heard(self, message: Msg) -> None:
        self._asked.append(message)

    async def _send(self, batch: DonorBatch) -> None:
        for payload in self._payloads(batch):
            await self._client.publish(events_subject(self._publisher), frame(self._said.add(payload), payload))
        await self._client.flush(FLUSH_S)

    def _payloads(self, batch: DonorBatch) -> list[bytes]:
        """The batch in messages the server takes; a single event that is too large is left out."""
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
        for _ in range(min(REQUESTS_PER_TURN, len(self._asked))):
            lacks |= await self._repeat(self._asked.popleft())
        return lacks

    async def _repeat(self, asked: Msg) -> bool:
        if len(asked.data) != SEQUENCE_BYTES or not asked.reply:
            return False  # no request of this protocol
        start = int.from_bytes(asked.data, "big")
        headers = {PUBLISHER_HEADER: self._publisher}
        for sequence, payload in self._said.since(start):
            await self._client.publish(asked.reply, frame(sequence, payload), headers=headers)
        await self._client.publish(asked.reply, END, headers=headers)
        await self._client.flush(FLUSH_S)
        return self._said.lacks(start)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


async def _ignore(_: Exception) -> None:
    """What matters is raised where it was asked for; the client would log the rest."""
