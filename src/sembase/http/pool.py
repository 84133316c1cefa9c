"""The connections to one origin: at most a given number, the newest idle one first, a queue when all are busy.

O(1) per request. An open connection costs about 3 KB here, plus what the system keeps for its socket.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from typing import Final

from sembase.http.connection import HttpConnection
from sembase.http.credentials import KeptCredentials
from sembase.http.origin import Origin
from sembase.http.reply import HttpFault

# uvicorn, and so vLLM and SGLang, closes an idle connection after 5 s: an older one would fail with the request.
KEEP_IDLE_SECONDS: Final = 4.0
# This machine ran out of files, memory or local ports.
_LOCAL_LIMITS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class ConnectionPool:
    """``lost`` and ``released`` are called by connections, the rest by `HttpClient`."""

    def __init__(
        self, origin: str, *, max_connections: int, connect_seconds: float, credentials: KeptCredentials
    ) -> None:
        self._origin = Origin(origin, credentials)
        self.host_header = self._origin.host_header
        self._max = max_connections
        self._connect_seconds = connect_seconds
        self._idle: dict[HttpConnection, float] = {}
        self._all: set[HttpConnection] = set()
        self._opening = 0
        self._waiting: deque[asyncio.Future[HttpConnection | None]] = deque()
        self._emptied: asyncio.Event | None = None

    @property
    def is_unused(self) -> bool:
        return not (self._all or self._opening or self._waiting)

    async def acquire(self) -> tuple[HttpConnection, bool]:
        """A connection, and whether it has served before; waits at most the connect timeout."""
        if (connection := self._newest_idle()) is not None:
            return connection, True
        is_full = False
        try:
            async with asyncio.timeout(self._connect_seconds):
                if is_full := len(self._all) + self._opening >= self._max:
                    given = await self._wait_for_one()
                    is_full = False
                    if given is not None:
                        return given, True
                return await self._connect(), False
        except TimeoutError:
            if is_full:
                raise HttpFault("no_connection", sent=False, detail="all are busy") from None
            raise HttpFault("connect", sent=False, detail="timed out") from None
        except (OSError, UnicodeError) as error:
            raise _fault_of(error) from error

    def drop_idle(self) -> None:
        """After one idle connection was found closed, the others of its age are not worth a request."""
        idle, self._idle = self._idle, {}
        for connection in idle:
            connection.abort()

    def released(self, connection: HttpConnection) -> None:
        waiter = self._next_waiter()
        if waiter is not None:
            waiter.set_result(connection)
        elif self._emptied is not None:
            connection.abort()
        else:
            self._idle[connection] = asyncio.get_running_loop().time()

    def lost(self, connection: HttpConnection) -> None:
        self._all.discard(connection)
        self._idle.pop(connection, None)
        self._free_slot()
        if self._emptied is not None and not self._all:
            self._emptied.set()

    async def close(self) -> None:
        self._emptied = asyncio.Event()
        if not self._all:
            return
        for connection in tuple(self._all):
            connection.abort()
        await self._emptied.wait()

    def _newest_idle(self) -> HttpConnection | None:
        if not self._idle:
            return None
        oldest_allowed_s = asyncio.get_running_loop().time() - KEEP_IDLE_SECONDS
        while self._idle:
            connection, since_s = self._idle.popitem()
            if since_s >= oldest_allowed_s and connection.is_open:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> HttpConnection:
        self._opening += 1
        opened = False
        try:
            connection = await self._origin.connect(self)
            opened = True
        finally:
            self._opening -= 1
            if not opened:
                self._free_slot()
        self._all.add(connection)
        return connection

    async def _wait_for_one(self) -> HttpConnection | None:
        """A connection another request gave back, or None: there is room for a new one."""
        waiter: asyncio.Future[HttpConnection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                given = waiter.result()
                self._free_slot() if given is None else self.released(given)
            raise

    def _free_slot(self) -> None:
        if self._waiting and len(self._all) + self._opening < self._max and (waiter := self._next_waiter()) is not None:
            waiter.set_result(None)

    def _next_waiter(self) -> asyncio.Future[HttpConnection | None] | None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                return waiter
        return None


def _fault_of(error: OSError | UnicodeError) -> HttpFault:
    detail = type(error).__name__
    if not isinstance(error, OSError):
        return HttpFault("connect", sent=False, detail=detail)
    if error.errno in _LOCAL_LIMITS:
        return HttpFault("no_connection", sent=False, detail=errno.errorcode[error.errno])
    return HttpFault("connect", sent=False, detail=detail, refused=_is_refusal(error))


def _is_refusal(error: OSError) -> bool:
    """For a name with several addresses (localhost), the loop raises one error without a number that lists them all."""
    if error.errno is not None:
        return error.errno == errno.ECONNREFUSED
    text = str(error)
    refusals = text.count(f"[Errno {errno.ECONNREFUSED}]")
    return 0 < refusals == text.count("[Errno ")
