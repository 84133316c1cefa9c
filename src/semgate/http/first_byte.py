"""Delays an answer, so that the time of its first byte reveals less. Used by proxy and router.

The delay is added here and not in the engine, where it would hold up a step of every request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from sembase.http.client import HttpFault

# Of one stream. A faster one is read on as it is passed on, so its later chunks are later still.
MAX_HELD_BYTES: Final = 256 * 1024
READ_AHEAD: Final = "reading ahead of a shifted stream"


@asynccontextmanager
async def shifted(chunks: AsyncIterator[bytes], delay_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
    """Enter it when the first byte is here. Waits for ``delay_s``; each of ``chunks`` then comes as much later than it
    arrived. A delay that is not positive changes nothing."""
    if delay_s <= 0.0:
        yield chunks
        return
    later = _Later(chunks, delay_s)
    reading = asyncio.create_task(later.read(), name=READ_AHEAD)
    try:
        await asyncio.sleep(delay_s)
        yield later.chunks()
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


async def with_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Puts the first chunk, read already, back before the rest of its stream. An empty first chunk was the end."""
    if first:
        yield first
        async for chunk in rest:
            yield chunk


class _Later:
    """Notes when each chunk arrived, and the end or the fault after them."""

    def __init__(self, source: AsyncIterator[bytes], delay_s: float) -> None:
        self._source = source
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._held: deque[tuple[float, bytes | HttpFault | None]] = deque()
        self._held_bytes = 0
        self._has_more = asyncio.Event()
        self._has_room = asyncio.Event()

    async def read(self) -> None:
        end: HttpFault | None = None
        try:
            async for chunk in self._source:
                self._hold(chunk)
                self._held_bytes += len(chunk)
                while self._held_bytes >= MAX_HELD_BYTES:
                    self._has_room.clear()
                    await self._has_room.wait()
        except HttpFault as fault:
            end = fault
        self._hold(end)

    def _hold(self, item: bytes | HttpFault | None) -> None:
        self._held.append((self._loop.time() + self._delay_s, item))
        self._has_more.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            while not self._held:
                self._has_more.clear()
                await self._has_more.wait()
            due_s, item = self._held[0]
            if (left_s := due_s - self._loop.time()) > 0.0:
                await asyncio.sleep(left_s)
            self._held.popleft()
            if item is None:
                return
            if isinstance(item, HttpFault):
                raise item
            self._held_bytes -= len(item)
            self._has_room.set()
            yield item
