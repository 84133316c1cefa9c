"""GET requests to a Kubernetes API server: a path in, a status and lines of the body out as they arrive.

Standard library only: one connection per request, TLS by the cluster's own authority, the token read anew each time
because the kubelet replaces it. Called by ``kubernetes`` alone.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sembase.errors import ConfigurationError

_MOST_LINE_BYTES: Final = 8 << 20
_MOST_HEADERS: Final = 200
_PIECE_BYTES: Final = 64 << 10


class ApiServerFaultError(OSError):
    """The server could not be asked, or its answer is not HTTP."""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """``connect_s`` and ``quiet_s`` bound connecting and the silence between two pieces of an answer."""

    origin: str
    token_file: Path | None = None
    authority_file: Path | None = None
    connect_s: float = 5.0
    quiet_s: float = 330.0

    @asynccontextmanager
    async def get(self, path_and_query: str) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        reader, writer = await self._connect()
        try:
            writer.write(self._head(path_and_query))
            async with asyncio.timeout(self.quiet_s):
                await writer.drain()
                status, headers = await _read_head(reader)
            async with aclosing(_body(reader, headers)) as body, aclosing(_lines(body, self.quiet_s)) as lines:
                yield status, lines
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise ApiServerFaultError(f"the API server's answer is broken: {type(error).__name__}") from None
        finally:
            writer.close()
            # TLS wants a farewell that a dead peer never sends; nobody needs to wait for it.
            writer.transport.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port, tls = self._address()
        async with asyncio.timeout(self.connect_s):
            return await asyncio.open_connection(host, port, ssl=tls, limit=_PIECE_BYTES)

    def _address(self) -> tuple[str, int, ssl.SSLContext | None]:
        parts = urlsplit(self.origin)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"'{self.origin}' is not the address of an API server, such as https://host:443")
        if parts.scheme == "http":
            return parts.hostname, parts.port or 80, None
        authority = str(self.authority_file) if self.authority_file is not None else None
        return parts.hostname, parts.port or 443, ssl.create_default_context(cafile=authority)

    def _head(self, path_and_query: str) -> bytes:
        lines = [f"GET {path_and_query} HTTP/1.1", f"host: {urlsplit(self.origin).netloc}", "accept: application/json"]
        if self.token_file is not None:
            lines.append(f"authorization: Bearer {self.token_file.read_text().strip()}")
        return "\r\n".join([*lines, "connection: close", "", ""]).encode()


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes]]:
    status = await reader.readuntil(b"\r\n")
    parts = status.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1."):
        raise ValueError("no status line")
    headers: dict[bytes, bytes] = {}
    for _ in range(_MOST_HEADERS):
        line = (await reader.readuntil(b"\r\n")).rstrip(b"\r\n")
        if not line:
            return int(parts[1]), headers
        name, _, value = line.partition(b":")
        headers[name.lower().strip()] = value.strip()
    raise ValueError("too many headers")


async def _body(reader: asyncio.StreamReader, headers: dict[bytes, bytes]) -> AsyncGenerator[bytes, None]:
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            while size > 0:
                piece = await reader.read(min(size, _PIECE_BYTES))
                if not piece:
                    raise asyncio.IncompleteReadError(b"", size)
                size -= len(piece)
                yield piece
            await reader.readexactly(2)
        return
    left = int(headers[b"content-length"]) if b"content-length" in headers else None
    while left is None or left > 0:
        piece = await reader.read(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES))
        if not piece:
            if left is not None:
                raise asyncio.IncompleteReadError(b"", left)
            return
        left = None if left is None else left - len(piece)
        yield piece


async def _lines(pieces: AsyncIterator[bytes], quiet_s: float) -> AsyncGenerator[bytes, None]:
    kept = bytearray()
    while True:
        async with asyncio.timeout(quiet_s):
            piece = await anext(pieces, None)
        if piece is None:
            break
        kept += piece
        *whole, rest = kept.split(b"\n")
        for line in whole:
            if line.strip():
                yield bytes(line)
        kept = bytearray(rest)
        if len(kept) > _MOST_LINE_BYTES:
            raise ValueError("a line is too long")
    if kept.strip():
        yield bytes(kept)
