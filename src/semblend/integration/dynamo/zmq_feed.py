"""One worker's donor events over ZeroMQ into the provider, with replay. A task per worker on the router's loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from sembase.errors import MissingDependencyError
from semblend.contract.donor_event import TOPIC, DonorBatch, DonorEventError, replay_endpoint
from semblend.donors.packing import END, SEQUENCE_BYTES, unpack
from semblend.integration.dynamo.donor_stream import DonorStream
from semblend.integration.dynamo.provider import SemanticEvidenceProvider

try:
    import zmq
    import zmq.asyncio
except ImportError as error:
    raise MissingDependencyError(str(error.name), "dynamo", "donor events over ZeroMQ") from None

REPLAY_S: Final = 5.0
MAX_REPLAY_MESSAGES: Final = 20_000


class ZmqDonorFeed:
    """``follow`` may be called for any number of workers; ``close`` ends all tasks and sockets."""

    def __init__(self, provider: SemanticEvidenceProvider) -> None:
        self.malformed = 0
        self._provider = provider
        self._context = zmq.asyncio.Context()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._streams: dict[int, DonorStream] = {}

    def follow(self, worker_id: int, endpoint: str, replay: str | None = None) -> None:
        self.leave(worker_id)
        apply, clear = partial(self._provider.apply, worker_id), partial(self._provider.forget, worker_id)
        self._streams[worker_id] = stream = DonorStream(apply, clear)
        work = self._listen(stream, endpoint, replay or replay_endpoint(endpoint))
        self._tasks[worker_id] = asyncio.get_running_loop().create_task(work, name=f"donors of {worker_id}")

    def stream_of(self, worker_id: int) -> DonorStream | None:
        return self._streams.get(worker_id)

    def leave(self, worker_id: int) -> None:
        """The worker is gone, and its donors with it."""
        if (task := self._tasks.pop(worker_id, None)) is not None:
            task.cancel()
        self._streams.pop(worker_id, None)
        self._provider.forget(worker_id)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for worker_id in list(self._tasks):
            self.leave(worker_id)
        await asyncio.gather(*tasks, return_exceptions=True)
        self._context.destroy(linger=0)

    async def _listen(self, stream: DonorStream, endpoint: str, replay: str) -> None:
        reader = self._context.socket(zmq.SUB)
        try:
            reader.setsockopt_string(zmq.SUBSCRIBE, TOPIC)
            reader.connect(endpoint)
            await self._ask(stream, replay, 0)  # a publisher that is silent now has spoken before
            while True:
                frames = await reader.recv_multipart()
                read = self._read(frames[1:]) if len(frames) == 3 else None
                if read is not None and (start := stream.live(*read)) is not None:
                    await self._ask(stream, replay, start)
        finally:
            reader.close(linger=0)

    async def _ask(self, stream: DonorStream, replay: str, start: int) -> None:
        asker = self._context.socket(zmq.DEALER)
        try:
            asker.connect(replay)
            await asker.send_multipart((b"", start.to_bytes(SEQUENCE_BYTES, "big")))
            async with asyncio.timeout(REPLAY_S):
                stream.replayed(await self._answers(asker))
        except TimeoutError:
            stream.unanswered()
        finally:
            asker.close(linger=0)

    async def _answers(self, asker: Any) -> list[tuple[int, DonorBatch]]:
        messages = []
        for _ in range(MAX_REPLAY_MESSAGES):
            frames = await asker.recv_multipart()
            if frames[-2] == END:
                break
            if (read := self._read(frames[-2:])) is not None:
                messages.append(read)
        return messages

    def _read(self, frames: list[bytes]) -> tuple[int, DonorBatch] | None:
        try:
            return int.from_bytes(frames[0], "big"), unpack(frames[1])
        except DonorEventError:
            self.malformed += 1
            return None
