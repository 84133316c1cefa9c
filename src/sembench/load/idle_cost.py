"""What our HTTP client costs when nothing else happens: the same GET by it and by a bare socket, in turns.

Both are timed from before sending until the whole answer is there. The difference is an upper bound of what the client
adds to a TTFT on an idle machine; how much the load itself adds, the lag probe says.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final
from urllib.parse import urlsplit

from sembench.http.client import LiveClient
from sembench.load.percentiles import summarize, value_of

_ROUNDS: Final = 30
_FIRST_ROUNDS: Final = 3  # connect, and fill caches
_PATH: Final = "/v1/models"
_SECONDS: Final = 10.0


async def measure_idle_cost(client: LiveClient) -> dict[str, Any] | None:
    """None if the server does not answer a bare GET in a way this can read."""
    by_client: list[float] = []
    by_socket: list[float] = []
    try:
        async with asyncio.timeout(_SECONDS):
            bare = await _BareSocket.connect(client.root_url)
            try:
                for _ in range(_FIRST_ROUNDS + _ROUNDS):
                    before = time.perf_counter()
                    await bare.get(_PATH)
                    between = time.perf_counter()
                    await client.get(_PATH)
                    by_client.append(1000.0 * (time.perf_counter() - between))
                    by_socket.append(1000.0 * (between - before))
            finally:
                bare.close()
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
        return None
    ours, theirs = summarize(by_client[_FIRST_ROUNDS:]), summarize(by_socket[_FIRST_ROUNDS:])
    ours_p50, theirs_p50 = value_of(ours, 50), value_of(theirs, 50)
    assert ours_p50 is not None
    assert theirs_p50 is not None
    return {"path": _PATH, "client_ms": ours, "bare_socket_ms": theirs, "difference_p50_ms": ours_p50 - theirs_p50}


class _BareSocket:
    """Just enough HTTP/1.1 for a GET with a known length or in chunks."""

    def __init__(self, root_url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._parts = urlsplit(root_url)
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, root_url: str) -> _BareSocket:
        parts = urlsplit(root_url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=True if secure else None)
        return cls(root_url, reader, writer)

    async def get(self, path: str) -> None:
        self._writer.write(f"GET {self._parts.path}{path} HTTP/1.1\r\nhost: {self._parts.netloc}\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, length, rest = head.partition(b"\r\ncontent-length:")
        if length:
            await self._reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
        elif b"\r\ntransfer-encoding: chunked" in head:
            while size := int((await self._reader.readline()).split(b";")[0], 16):
                await self._reader.readexactly(size + 2)
            await self._reader.readline()
        else:
            raise ValueError("an answer without a length")

    def close(self) -> None:
        self._writer.close()
