"""All publishers on NATS into the provider: messages in their order, replays where some are missing.

Runs on the router's loop. Publishers are named by their worker's instance id; at most ``MAX_PUBLISHERS`` are followed,
the one that was silent longest leaves for a new one. At most ``MAX_ASKING`` replays are awaited at once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import Any, Final

from sembase.errors import MissingDependencyError
from semblend.contract.donor_event import DonorBatch, DonorEventError
from semblend.donors.packing import END, SEQUENCE_BYTES, unframe, unpack
from semblend.integration.dynamo.catching_up import Answer, CatchingUp, Room
from semblend.integration.dynamo.donor_stream import DonorStream
from semblend.integration.dynamo.nats_subjects import (
    EVERYBODY,
    PUBLISHER_HEADER,
    REPLAY_OF_ALL,
    publisher_of,
    replay_subject,
)
from semblend.integration.dynamo.provider import SemanticEvidenceProvider

try:
    import nats
    from nats.aio.msg import Msg
except ImportError as error:
    raise MissingDependencyError(str(error.name), "dynamo", "donor events over NATS") from None

MAX_PUBLISHERS: Final = 4096
MAX_ASKING: Final = 64
MAX_REPLAY_MESSAGES: Final = 20_000
CONNECT_S: Final = 5
REPLAY_S: Final = 5.0
HELLO_S: Final = 1.0


class NatsDonorFeed:
    """``malformed`` messages were left out, ``dropped`` publishers had to make room; they are heard when they speak."""

    def __init__(self, url: str, provider: SemanticEvidenceProvider) -> None:
        self.malformed = 0
        self.dropped = 0
        self._url = url
        self._provider = provider
        self._followed: OrderedDict[int, CatchingUp] = OrderedDict()  # the one heard last is last
        self._room = Room()
        self._asking = asyncio.Semaphore(MAX_ASKING)
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._client: Any = None

    async def start(self) -> None:
        """Follow everybody, and ask those who are silent what they have said so far."""
        self._client = await nats.connect(self._url, connect_timeout=CONNECT_S, error_cb=_ignore)
        await self._client.subscribe(EVERYBODY, cb=self._heard)
        await self._client.flush()
        await self._hello()

    async def close(self) -> None:
        """What is known of the workers stays with the provider."""
        self._is_closing = True  # no new question while the old ones end
        for followed in self._followed.values():
            self._end(followed)
        await asyncio.gather(*self._ending, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def stream_of(self, worker_id: int) -> DonorStream | None:
        followed = self._followed.get(worker_id)
        return None if followed is None else followed.stream

    def leave(self, worker_id: int) -> None:
        """The worker is gone, and its donors with it."""
        if (followed := self._followed.pop(worker_id, None)) is not None:
            self._end(followed)
        self._provider.forget(worker_id)

    def _end(self, followed: CatchingUp) -> None:
        if (task := followed.leave()) is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _heard(self, message: Msg) -> None:
        """Waits for nobody: all publishers come through this one subscription."""
        read = self._read(message, publisher_of(message.subject))
        if read is not None and not self._is_closing:
            worker_id, sequence, batch = read
            self._follow(worker_id).heard(sequence, batch, len(message.data))

    def _read(self, message: Msg, publisher: str) -> tuple[int, int, DonorBatch] | None:
        try:
            worker_id = int(publisher)
            sequence, payload = unframe(message.data)
            return worker_id, sequence, unpack(payload)
        except (ValueError, DonorEventError):
            self.malformed += 1
            return None

    def _follow(self, worker_id: int) -> CatchingUp:
        followed = self._followed.get(worker_id)
        if followed is None:
            if len(self._followed) >= MAX_PUBLISHERS:
                self.leave(next(iter(self._followed)))
                self.dropped += 1
            apply, clear = partial(self._provider.apply, worker_id), partial(self._provider.forget, worker_id)
            followed = CatchingUp(DonorStream(apply, clear), partial(self._ask, worker_id), self._room)
            self._followed[worker_id] = followed
        self._followed.move_to_end(worker_id)
        return followed

    async def _ask(self, worker_id: int, start: int) -> Answer:
        async with self._asking:
            try:
                answers = await self._replay(replay_subject(str(worker_id)), start, REPLAY_S, publishers=1)
            except nats.errors.Error:
                return None  # the server is away
        return answers.get(worker_id)

    async def _hello(self) -> None:
        answers = await self._replay(REPLAY_OF_ALL, 0, HELLO_S, publishers=MAX_PUBLISHERS)
        for worker_id, messages in answers.items():
            self._follow(worker_id).stream.replayed(messages)

    async def _replay(
        self, subject: str, start: int, patience_s: float, *, publishers: int
    ) -> dict[int, list[tuple[int, DonorBatch]]]:
        """Complete answers by worker; one that was not ended in time is as good as none."""
        inbox = self._client.new_inbox()
        answered = await self._client.subscribe(inbox)
        await self._client.publish(subject, start.to_bytes(SEQUENCE_BYTES, "big"), reply=inbox)
        parts: dict[int, list[tuple[int, DonorBatch]]] = {}
        complete: dict[int, list[tuple[int, DonorBatch]]] = {}
        try:
            async with asyncio.timeout(patience_s):
                for _ in range(MAX_REPLAY_MESSAGES):
                    message = await answered.next_msg(timeout=patience_s)
                    publisher = (message.headers or {}).get(PUBLISHER_HEADER, "")
                    if message.data == END and publisher.isdecimal():
                        complete[int(publisher)] = parts.pop(int(publisher), [])
                        if len(complete) >= publishers:
                            break
                    elif (read := self._read(message, publisher)) is not None:
                        parts.setdefault(read[0], []).append(read[1:])
        except (TimeoutError, nats.errors.TimeoutError):
            pass  # what is complete by now counts
        finally:
            await answered.unsubscribe()
        return complete


async def _ignore(_: Exception) -> None:
    """The client reconnects by itself; what was missed meanwhile shows in the sequence."""
