"""A reply as it arrives, and the fault that may end it.

`connection.py` fills a reply and the sender of the request reads it. Chunks are passed on as they arrive. A reply
buffers at most `PAUSE_BYTES` and one read (256 KB) for a slow reader; then its connection stops reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, Literal, Protocol, Self

Headers = tuple[tuple[bytes, bytes], ...]
# Called with a piece of the body and the time (`time.perf_counter`) at which it was read from the socket.
OnBody = Callable[[bytes, float], None]
# no_connection: none was free in time, or this machine could not open one; it says nothing about the server.
FaultKind = Literal["connect", "no_connection", "timeout", "reset", "protocol"]

PAUSE_BYTES: Final = 256 * 1024


class HttpFault(Exception):  # noqa: N818  (the server's or the network's fault; errors are ours)
    """A server that did not answer as agreed. ``sent``: it may have begun to work on the request.

    ``refused``: its machine answered that nothing listens on the port, the only sure sign that the process is gone.
    ``detail`` never quotes a request or a reply; ``__cause__`` is the system's own error where there is one.
    """

    def __init__(self, kind: FaultKind, *, sent: bool, detail: str = "", refused: bool = False) -> None:
        super().__init__(f"{kind}{': ' if detail else ''}{detail}")
        self.kind: FaultKind = kind
        self.sent = sent
        self.refused = refused
        self.detail = detail


class ReplySource(Protocol):
    """The connection a reply comes from."""

    def resume(self) -> None: ...

    def abort(self) -> None: ...


class StreamedReply:
    """``status`` and ``headers`` are set once `started` returns. A reader that stops early must call `abort`.

    ``sent_at`` and ``read_at`` are times of `time.perf_counter`: when the request was written, when bytes last came.
    With ``on_body``, the body of a 2xx reply goes there in the turn of the loop that read it, and `chunks` yields none.
    """

    __slots__ = (
        "_arrived",
        "_connection",
        "_fault",
        "_held_bytes",
        "_loop",
        "_on_body",
        "_pieces",
        "_waiter",
        "headers",
        "read_at",
        "sent_at",
        "status",
    )

    def __init__(
        self, connection: ReplySource, loop: asyncio.AbstractEventLoop, sent_at: float, on_body: OnBody | None = None
    ) -> None:
        self.status = 0
        self.headers: Headers = ()
        self.sent_at = sent_at
        self.read_at = sent_at
        self._on_body = on_body
        self._connection: ReplySource | None = connection  # None: nothing more will come
        self._loop = loop
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._arrived = False
        self._fault: HttpFault | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_complete(self) -> bool:
        """The body has been read to its end. Right after a chunk: that chunk was the last one."""
        return self._connection is None and not self._pieces and self._fault is None

    @property
    def any_byte_arrived(self) -> bool:
        return self._arrived

    async def started(self) -> None:
        """Waits for the head of the reply."""
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

    async def read(self, max_bytes: int) -> bytes:
        """The whole body; a longer one is cut there and its connection closed."""
        pieces: list[bytes] = []
        size_bytes = 0
        async for piece in self:
            pieces.append(piece)
            size_bytes += len(piece)
            if size_bytes > max_bytes:
                self.abort_now()
                break
        return b"".join(pieces)[:max_bytes]

    async def abort(self) -> None:
        self.abort_now()

    def abort_now(self) -> None:
        """Closes the connection unless the reply is complete, so that the server sees its client leave.

        May be called at any time, any number of times.
        """
        connection, self._connection = self._connection, None
        self._pieces = []
        if connection is not None:
            connection.abort()

    def arrived(self, read_at: float) -> None:
        self._arrived = True
        self.read_at = read_at

    def begin(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        if not 200 <= status < 300:
            self._on_body = None  # the body is an error message, for `chunks` or `read`
        self._wake()

    def take(self, piece: bytes) -> bool:
        """True: the reader is slow and the server should wait."""
        if self._on_body is not None:
            self._on_body(piece, self.read_at)
            return False
        self._pieces.append(piece)
        self._held_bytes += len(piece)
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)
        return self._held_bytes > PAUSE_BYTES

    def end(self, fault: HttpFault | None) -> None:
        self._connection, self._fault = None, fault
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _wait(self) -> None:
        self._waiter = waiter = self._loop.create_future()
        await waiter
