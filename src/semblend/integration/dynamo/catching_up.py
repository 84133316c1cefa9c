"""One publisher's messages in their order: while a replay is awaited, later ones wait, and nobody else does.

Live messages go in, a task exists only while something is missing. What waits is bounded by messages per publisher and
by the bytes of a room that all share; what finds no place is asked for again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from semblend.contract.donor_event import DonorBatch
from semblend.integration.dynamo.donor_stream import DonorStream

MAX_WAITING: Final = 256
ROOM_BYTES: Final = 64 << 20

Answer = Sequence[tuple[int, DonorBatch]] | None


class Room:
    """Bytes on the wire of everything that waits."""

    def __init__(self, max_bytes: int = ROOM_BYTES) -> None:
        self.used_bytes = 0
        self._max_bytes = max_bytes

    def take(self, size_bytes: int) -> bool:
        if self.used_bytes + size_bytes > self._max_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def give(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes


class CatchingUp:
    """``ask`` gives what was said from a sequence on, or None when no complete answer came."""

    def __init__(self, stream: DonorStream, ask: Callable[[int], Awaitable[Answer]], room: Room) -> None:
        self.stream = stream
        self._ask = ask
        self._room = room
        self._waiting: deque[tuple[int, DonorBatch, int]] = deque()
        self._is_behind = False
        self._task: asyncio.Task[None] | None = None

    def heard(self, sequence: int, batch: DonorBatch, size_bytes: int) -> None:
        if self._task is not None:
            self._wait(sequence, batch, size_bytes)
        elif (start := self.stream.live(sequence, batch)) is not None:
            self._task = asyncio.get_running_loop().create_task(self._catch_up(start))

    def leave(self) -> asyncio.Task[None] | None:
        """End the task, if there is one; it is the caller's to await."""
        task = self._task
        if task is not None:
            task.cancel()
        while self._waiting:
            self._room.give(self._waiting.popleft()[2])
        return task

    def _wait(self, sequence: int, batch: DonorBatch, size_bytes: int) -> None:
        if len(self._waiting) < MAX_WAITING and self._room.take(size_bytes):
            self._waiting.append((sequence, batch, size_bytes))
        else:
            self._is_behind = True

    async def _catch_up(self, start: int | None) -> None:
        try:
            while start is not None:
                answer = await self._ask(start)
                if answer is None:
                    self.stream.unanswered()
                else:
                    self.stream.replayed(answer)
                start = self._take_waiting()
        finally:
            self._task = None

    def _take_waiting(self) -> int | None:
        """From where to ask again, if need be; what comes behind keeps waiting then."""
        while self._waiting:
            sequence, batch, size_bytes = self._waiting.popleft()
            self._room.give(size_bytes)
            if (start := self.stream.live(sequence, batch)) is not None:
                return start
        if not self._is_behind:
            return None
        self._is_behind = False
        return 0 if self.stream.is_lost else self.stream.expected
