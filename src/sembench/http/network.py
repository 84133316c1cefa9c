"""Sockets for ``httpcore`` that note when bytes came: the stamp is taken as they are read, before any task is woken.

With a thousand streams in one process a task may wake long after its bytes were read; that wait is the client's and
must not count as the server's. It is also cheaper than the generic backend, which sets up a timeout for each read.
Time limits per operation are not kept here: the transport bounds a request as a whole.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import httpcore

_clock: Final = time.perf_counter
_MOST_BUFFERED_BYTES: Final = 1 << 20


class TimedStream(httpcore.AsyncNetworkStream):
    """One connection. ``read_at`` is when the bytes last returned came, ``wrote_at`` when a request began to go out."""

    def __init__(self) -> None:
        self.read_at = 0.0
        self.wrote_at = 0.0
        self._answering = True
        self._socket = _Socket()

    async def connect(self, host: str, port: int, local_address: str | None) -> None:
        loop = asyncio.get_running_loop()
        local = None if local_address is None else (local_address, 0)
        await loop.create_connection(lambda: self._socket, host, port, local_addr=local)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        socket = self._socket
        while not socket.pieces:
            if socket.lost:
                if socket.fault is not None:
                    raise httpcore.ReadError(str(socket.fault)) from socket.fault
                return b""
            await socket.wait_for_bytes()
        self._answering = True
        piece, self.read_at = socket.take(max_bytes)
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._answering:
            self._answering = False
            self.wrote_at = _clock()
        socket = self._socket
        if socket.lost:
            raise httpcore.WriteError(str(socket.fault or "the server closed the connection"))
        socket.transport.write(buffer)
        if socket.full is not None:
            await socket.full

    async def aclose(self) -> None:
        self._socket.transport.close()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        socket = self._socket
        loop = asyncio.get_running_loop()
        try:
            secured = await loop.start_tls(socket.transport, socket, ssl_context, server_hostname=server_hostname)
        except (OSError, ssl.SSLError) as error:
            socket.transport.close()
            raise httpcore.ConnectError(str(error)) from error
        if not isinstance(secured, asyncio.Transport):
            raise httpcore.ConnectError("the connection was lost while it was being secured")
        socket.transport = secured
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._socket.lost or bool(self._socket.pieces)
        names = {"ssl_object": "ssl_object", "client_addr": "sockname", "server_addr": "peername", "socket": "socket"}
        return self._socket.transport.get_extra_info(names[info]) if info in names else None


class TimedBackend(httpcore.AsyncNetworkBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = TimedStream()
        try:
            await stream.connect(host, port, local_address)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return stream

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Socket(asyncio.Protocol):
    """Pieces as they were read, each with its time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.pieces: deque[tuple[bytes, float]] = deque()
        self.lost = False
        self.fault: Exception | None = None
        self.full: asyncio.Future[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._buffered_bytes = 0
        self._paused = False

    async def wait_for_bytes(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def take(self, max_bytes: int) -> tuple[bytes, float]:
        piece, came_at = self.pieces.popleft()
        if len(piece) > max_bytes:
            self.pieces.appendleft((piece[max_bytes:], came_at))
            piece = piece[:max_bytes]
        self._buffered_bytes -= len(piece)
        if self._paused and self._buffered_bytes <= _MOST_BUFFERED_BYTES // 2:
            self._paused = False
            self.transport.resume_reading()
        return piece, came_at

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append((data, _clock()))
        self._buffered_bytes += len(data)
        if self._buffered_bytes > _MOST_BUFFERED_BYTES and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self.lost = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost, self.fault = True, exc
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        self.full = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self.full is not None:
            if not self.full.done():
                self.full.set_result(None)
            self.full = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
