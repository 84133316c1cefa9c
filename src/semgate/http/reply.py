"""A reply as it comes: bytes are handed on in the turn they arrive, and held only while nobody has read them.

Filled by `connection.py`, read by proxy and router. Holds at most `PAUSE_BYTES` and one read (256 KB) for a reader that
lags; then the connection stops reading from the upstream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Protocol, Self

from semgate.http.faults import UpstreamFault
from semgate.http.headers import Headers

PAUSE_BYTES: Final = 256 * 1024


class ReplySource(Protocol):
    """The connection a reply comes from."""

    def resume(self) -> None: ...

    def abort(self) -> None: ...


class StreamedReply:
    """``status`` and ``headers`` are set once `started` returns. Who stops reading early must call `abort`."""

    __slots__ = ("_arrived", "_connection", "_fault", "_held_bytes", "_loop", "_pieces", "_waiter", "headers", "status")

    def __init__(self, connection: ReplySource, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: Headers = ()
        self._connection: ReplySource | None = connection  # None: nothing more will come
        self._loop = loop
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._arrived = False
        self._fault: UpstreamFault | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_complete(self) -> bool:
        """Nothing is left to be read and nothing more will come: the chunk just read was the last."""
        return self._connection is None and not self._pieces and self._fault is None

    @property
    def any_byte_arrived(self) -> bool:
        return self._arrived

    async def started(self) -> None:
        """Until the head of the reply is here."""
        while not self.status:
            if self._fault is not None:
                raise self._fault
            await self._wait()

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while True:
            pieces = self._pieces
            if pieces:
                self._pieces = []
                self._held_bytes = 0
                if self._connection is not None:
                    self._connection.resume()
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if self._fault is not None:
                raise self._fault
            if self._connection is None:
                raise StopAsyncIteration
            await self._wait()

    async def abort(self) -> None:
        self.abort_now()

    def abort_now(self) -> None:
        """Closes the upstream connection unless the reply is complete: the engine sees that its client left."""
        connection, self._connection = self._connection, None
        self._pieces = []
        if connection is not None:
            connection.abort()

    def arrived(self) -> None:
        self._arrived = True

    def begin(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        self._wake()

    def take(self, piece: bytes) -> bool:
        """True: the reader lags and the upstream should wait."""
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)
        return self._held_bytes > PAUSE_BYTES

    def end(self, fault: UpstreamFault | None) -> None:
        self._connection, self._fault = None, fault
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _wait(self) -> None:
        self._waiter = waiter = self._loop.create_future()
        await waiter
