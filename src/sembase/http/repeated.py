"""One GET sent to one server again and again: an origin and targets in, each body handed to a callback.

For readers that ask many servers several times a second. It costs about 60 % of `HttpClient.send`: no task, no future
and no look-up per request, one connection that stays open, on the same `HttpConnection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from sembase.http.client import request_head
from sembase.http.connection import HttpConnection
from sembase.http.credentials import KeptCredentials
from sembase.http.origin import Origin
from sembase.http.reply import StreamedReply

MAX_BYTES: Final = 2 << 20


class RepeatedRequest:
    """``on_reply(body)`` after each reply; None if there was none, or not with status 200."""

    def __init__(
        self, url: str, credentials: KeptCredentials, on_reply: Callable[[bytes | None], None], *, timeout_s: float
    ) -> None:
        self._origin = Origin(url, credentials)
        self._credentials = credentials
        self._on_reply = on_reply
        self._timeout_s = timeout_s
        self._connection: HttpConnection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reply: StreamedReply | None = None
        self._heads: dict[str, bytes] = {}  # built once; again after a failure, since a key may have changed
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self._is_closed = False

    @property
    def is_running(self) -> bool:
        return self._reply is not None or self._opening is not None

    def send(self, target: str) -> None:
        """Starts one exchange. Does nothing while another is running."""
        if self._reply is not None and self._reply.status not in (0, 200) and self._connection is not None:
            self._connection.abort()  # the body of an error is not read, so it may never end
        if self.is_running or self._is_closed:
            return
        if self._connection is not None and self._connection.is_open:
            self._start(self._connection, target)
        else:
            self._opening = asyncio.get_running_loop().create_task(self._open(target))

    def close(self) -> None:
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
        connection, self._connection, self._reply = self._connection, None, None
        if connection is not None:
            connection.abort()

    def released(self, connection: HttpConnection) -> None:
        """The reply is complete."""
        self._finish()

    def lost(self, connection: HttpConnection) -> None:
        if connection is self._connection:
            self._connection = None
            self._finish()

    async def _open(self, target: str) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                self._connection = await self._origin.connect(self)
        except (OSError, UnicodeError, TimeoutError):
            self._on_reply(None)
            return
        finally:
            self._opening = None
        self._start(self._connection, target)

    def _start(self, connection: HttpConnection, target: str) -> None:
        self._pieces, self._size_bytes = [], 0
        head = self._heads.get(target)
        if head is None:
            headers = self._credentials.headers(())
            head = self._heads[target] = request_head("GET", target, self._origin.host_header, headers, b"")
        self._reply = connection.start(
            head,
            b"",
            is_head=False,
            first_byte_seconds=self._timeout_s,
            idle_seconds=self._timeout_s,
            on_body=self._take,
        )

    def _take(self, piece: bytes, _read_at: float) -> None:
        self._pieces.append(piece)
        self._size_bytes += len(piece)
        if self._size_bytes > MAX_BYTES and self._connection is not None:
            self._pieces = []
            self._connection.abort()

    def _finish(self) -> None:
        reply, self._reply = self._reply, None
        pieces, self._pieces = self._pieces, []
        if reply is None or self._is_closed:
            return
        if reply.status != 200 or not reply.is_complete or self._size_bytes > MAX_BYTES:
            self._heads.clear()
            self._on_reply(None)
        else:
            self._on_reply(pieces[0] if len(pieces) == 1 else b"".join(pieces))
