"""POST a body and pass on the answer's bytes with the time they came; faults are statuses. Also plain GET and POST.

Loaded when a client is made: this, ``connections`` and ``network`` alone import ``httpx`` and ``httpcore``. Streams go
to the connections below the ``httpx`` client: they have no use for cookies, redirects and logs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Final, Self

import httpcore
import httpx

from sembench import __version__
from sembench.http.connections import STREAM_FAULTS, Connections
from sembench.http.network import TimedStream
from sembench.http.reply import BROKEN_STREAM, CONNECTION, OK, TIMEOUT

_DETAIL_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Exchange:
    """One HTTP exchange: how it ended, its times on the clock of ``time.perf_counter``, its ``x-*`` headers.

    ``wire_at`` is when its first byte went to the socket: what lies between is the client's own doing, and connecting.
    """

    status: str
    detail: str
    sent_at: float
    wire_at: float | None
    ended_at: float
    headers: Mapping[str, str]


class HttpxTransport:
    def __init__(self, *, timeout_s: float, max_connections: int, headers: Mapping[str, str]) -> None:
        self._timeout_s = timeout_s
        # identity: a compressed stream would be timed by its blocks, not by its tokens.
        always = {"user-agent": f"sembench/{__version__}", "accept-encoding": "identity", **headers}
        self._headers = [(name.encode(), value.encode()) for name, value in always.items()]
        self._connections = Connections(max_connections)
        # trust_env off: a proxy from the environment would stand between the clock and the server unseen.
        self._client = httpx.AsyncClient(transport=self._connections, headers=always, timeout=None, trust_env=False)

    async def stream(
        self, url: str, headers: Iterable[tuple[str, str]], body: bytes, feed: Callable[[bytes, float], None]
    ) -> Exchange:
        """POST ``body``; every piece of the answer goes to ``feed`` with its time. Faults are statuses, not errors."""
        clock = time.perf_counter
        request = self._post(url, headers, body)
        status, detail, shown = OK, "", dict[str, str]()
        wire_at: float | None = None
        ended_at = sent_at = clock()
        try:
            async with asyncio.timeout(self._timeout_s):
                response, connection = await self._connections.open(request)
                try:
                    network = response.extensions["network_stream"]
                    assert isinstance(network, TimedStream)
                    wire_at = network.wrote_at
                    shown = _x_headers(response)
                    if 200 <= response.status < 300:
                        async for piece in response.aiter_stream():
                            feed(piece, network.read_at)
                    else:
                        status = f"http_{response.status}"
                        detail = (await response.aread()).decode("utf-8", "replace")[:_DETAIL_CHARS]
                    ended_at = network.read_at
                finally:
                    await self._connections.close(request.url.origin, response, connection)
        except TimeoutError:
            status, detail, ended_at = TIMEOUT, f"no complete answer within {self._timeout_s:g} s", clock()
        except STREAM_FAULTS as error:
            status, detail, ended_at = (CONNECTION if wire_at is None else BROKEN_STREAM), _say(error), clock()
        return Exchange(status, detail, sent_at, wire_at, ended_at, shown)

    def _post(self, url: str, headers: Iterable[tuple[str, str]], body: bytes) -> httpcore.Request:
        target, host = _target(url)
        sent = [
            (b"host", host),
            *self._headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *((name.encode(), value.encode()) for name, value in headers),
        ]
        return httpcore.Request(b"POST", target, headers=sent, content=body)

    async def fetch(self, method: str, url: str) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._client.request(method, url)
        except TimeoutError:
            raise ConnectionError(f"{method} {url}: no answer within {self._timeout_s:g} s") from None
        except (httpx.TransportError, OSError) as error:
            raise ConnectionError(f"{method} {url}: {_say(error)}") from None
        return response.status_code, response.content

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, traceback)


@lru_cache(maxsize=16)
def _target(url: str) -> tuple[httpcore.URL, bytes]:
    """The address as ``httpx`` understands it, and the host header that belongs to it."""
    parsed = httpx.URL(url)
    target = httpcore.URL(scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=parsed.raw_path)
    return target, parsed.netloc


def _x_headers(response: httpcore.Response) -> dict[str, str]:
    named = ((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in response.headers)
    return {name: value for name, value in named if name.startswith("x-")}


def _say(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
