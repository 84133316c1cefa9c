"""Connections of ``httpcore`` without its pool, behind one ``httpx`` transport, for a thousand streams in one process.

The pool looks at all its connections, for each of them, whenever a request starts or ends: at a thousand that is most
of the work there is. Here a free connection is the top of a stack, and the last one used is the first to be used again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

import httpcore
import httpx

from sembench.http.network import TimedBackend

_KEEPALIVE_SECONDS: Final = 30.0
_ERRORS: Final[dict[type[Exception], type[httpx.TransportError]]] = {
    httpcore.ConnectError: httpx.ConnectError,
    httpcore.ReadError: httpx.ReadError,
    httpcore.WriteError: httpx.WriteError,
    httpcore.LocalProtocolError: httpx.LocalProtocolError,
    httpcore.RemoteProtocolError: httpx.RemoteProtocolError,
    httpcore.UnsupportedProtocol: httpx.UnsupportedProtocol,
}
STREAM_FAULTS: Final[tuple[type[Exception], ...]] = (*_ERRORS, OSError)


class Connections(httpx.AsyncBaseTransport):
    """At most ``max_connections`` at a time; who comes later waits for one."""

    def __init__(self, max_connections: int) -> None:
        self._room = asyncio.Semaphore(max_connections)
        self._free: defaultdict[str, list[httpcore.AsyncHTTPConnection]] = defaultdict(list)
        self._context = httpx.create_ssl_context(trust_env=False)  # once: reading the certificates takes a while
        self._backend = TimedBackend()

    async def open(self, request: httpcore.Request) -> tuple[httpcore.Response, httpcore.AsyncHTTPConnection]:
        """Sends; whoever gets an answer has to ``close`` it."""
        await self._room.acquire()
        try:
            connection = await self._take(request.url.origin)
            return await connection.handle_async_request(request), connection
        except BaseException:
            self._room.release()
            raise

    async def close(
        self, origin: httpcore.Origin, response: httpcore.Response, connection: httpcore.AsyncHTTPConnection
    ) -> None:
        """An answer read to its end leaves the connection free for another request; else it is closed."""
        try:
            await response.aclose()
            if connection.is_available():
                self._free[str(origin)].append(connection)
        finally:
            self._room.release()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        asked = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_httpx_errors():
            response, connection = await self.open(asked)
        stream = _Stream(self, asked.url.origin, response, connection)
        return httpx.Response(response.status, headers=response.headers, stream=stream, extensions=response.extensions)

    async def aclose(self) -> None:
        for connections in self._free.values():
            for connection in connections:
                await connection.aclose()

    async def _take(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        free = self._free[str(origin)]
        while free:
            connection = free.pop()
            if not connection.has_expired():  # kept too long, or closed by the server meanwhile
                return connection
            await connection.aclose()
        return httpcore.AsyncHTTPConnection(
            origin, ssl_context=self._context, keepalive_expiry=_KEEPALIVE_SECONDS, network_backend=self._backend
        )


class _Stream(httpx.AsyncByteStream):
    def __init__(
        self,
        home: Connections,
        origin: httpcore.Origin,
        response: httpcore.Response,
        connection: httpcore.AsyncHTTPConnection,
    ) -> None:
        self._home = home
        self._origin = origin
        self._response = response
        self._connection: httpcore.AsyncHTTPConnection | None = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx_errors():
            async for piece in self._response.aiter_stream():
                yield piece

    async def aclose(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await self._home.close(self._origin, self._response, connection)


@contextmanager
def _as_httpx_errors() -> Iterator[None]:
    try:
        yield
    except tuple(_ERRORS) as error:
        raise _ERRORS[type(error)](str(error)) from error
