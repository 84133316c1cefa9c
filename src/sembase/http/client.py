"""The HTTP client of all packages: a request goes to an origin as it is, the reply comes back chunk by chunk.

Used by the gateway, the bench, the collector and the commands. It reads no proxy settings, follows no redirect and adds
no header but ``host`` and ``content-length``. A request costs no work that grows with the number of connections.
Own protocol on httptools: `docs/adr/0009-one-http-client.md` has its cost beside aiohttp and httpx.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.http.credentials import Credentials, KeptCredentials
from sembase.http.reply import Headers, HttpFault, OnBody, StreamedReply
from sembase.registry import load_target

if TYPE_CHECKING:
    from sembase.http.pool import ConnectionPool

__all__ = [
    "Credentials",
    "Headers",
    "HttpClient",
    "HttpFault",
    "StreamedReply",
    "describe_fault",
    "fetch_once",
    "is_repeatable",
    "split_url",
]

MAX_BODY_BYTES: Final = 64 << 20
_MAX_IDLE_POOLS: Final = 256
_STORES_RESPONSES: Final = "/responses"


class HttpClient:
    """``first_byte_seconds`` is from request to first byte of the body, ``idle_seconds`` between bytes.

    ``credentials`` are shown to every origin, the certificates to https ones.
    """

    def __init__(
        self,
        *,
        connect_seconds: float,
        first_byte_seconds: float,
        idle_seconds: float,
        max_connections_per_origin: int,
        credentials: Credentials | None = None,
    ) -> None:
        try:
            self._pool_type: type[ConnectionPool] = load_target("sembase.http.pool:ConnectionPool")
        except ModuleNotFoundError:
            raise MissingDependencyError("httptools", "live", "the HTTP client") from None
        self._connect_seconds = connect_seconds
        self._first_byte_seconds = first_byte_seconds
        self._idle_seconds = idle_seconds
        self._max_connections = max_connections_per_origin
        self._credentials = KeptCredentials(credentials or Credentials())
        self._pools: dict[str, ConnectionPool] = {}

    async def send(
        self,
        origin: str,
        method: str,
        path_and_query: str,
        headers: Headers,
        body: bytes,
        *,
        on_body: OnBody | None = None,
    ) -> StreamedReply:
        """Returns when the head of the reply is here. Cancelling closes the connection, so the server stops."""
        pool = self._pools.get(origin) or self._open_pool(origin)
        head = request_head(method, path_and_query, pool.host_header, self._credentials.headers(headers), body)
        reply, reused = await self._exchange(pool, head, body, method, on_body)
        try:
            await reply.started()
        except HttpFault as fault:
            # The server closed an idle connection, most likely before it saw the request; this side cannot know.
            closed_idle = reused and fault.kind == "reset" and not reply.any_byte_arrived
            if not closed_idle:
                raise
            if not is_repeatable(method, path_and_query):
                pool.drop_idle()
                raise
        except BaseException:
            reply.abort_now()
            raise
        else:
            return reply
        pool.drop_idle()
        reply, _ = await self._exchange(pool, head, body, method, on_body)
        try:
            await reply.started()
        except BaseException:
            reply.abort_now()
            raise
        return reply

    async def fetch(
        self, method: str, url: str, *, headers: Headers = (), body: bytes = b"", max_bytes: int = MAX_BODY_BYTES
    ) -> tuple[int, bytes]:
        """Status and body of one request; a longer body is cut at ``max_bytes``."""
        origin, target = split_url(url)
        reply = await self.send(origin, method, target, headers, body)
        try:
            return reply.status, await reply.read(max_bytes)
        finally:
            reply.abort_now()

    async def close(self) -> None:
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    async def _exchange(
        self, pool: ConnectionPool, head: bytes, body: bytes, method: str, on_body: OnBody | None
    ) -> tuple[StreamedReply, bool]:
        connection, reused = await pool.acquire()
        reply = connection.start(
            head,
            body,
            is_head=method == "HEAD",
            first_byte_seconds=self._first_byte_seconds,
            idle_seconds=self._idle_seconds,
            on_body=on_body,
        )
        return reply, reused

    def _open_pool(self, origin: str) -> ConnectionPool:
        if len(self._pools) >= _MAX_IDLE_POOLS:  # replicas that came and went
            self._pools = {name: pool for name, pool in self._pools.items() if not pool.is_unused}
        pool = self._pool_type(
            origin,
            max_connections=self._max_connections,
            connect_seconds=self._connect_seconds,
            credentials=self._credentials,
        )
        self._pools[origin] = pool
        return pool


def fetch_once(
    method: str,
    url: str,
    *,
    headers: Headers = (),
    body: bytes = b"",
    timeout_s: float,
    ca_file: Path | None = None,
    max_bytes: int = MAX_BODY_BYTES,
) -> tuple[int, bytes]:
    """One request on a connection and an event loop of its own, for commands. ``timeout_s`` bounds all of it."""

    async def exchange() -> tuple[int, bytes]:
        client = HttpClient(
            connect_seconds=timeout_s,
            first_byte_seconds=timeout_s,
            idle_seconds=timeout_s,
            max_connections_per_origin=1,
            credentials=Credentials(ca_file=ca_file),
        )
        try:
            async with asyncio.timeout(timeout_s):
                return await client.fetch(method, url, headers=headers, body=body, max_bytes=max_bytes)
        except TimeoutError:
            raise HttpFault("timeout", sent=True, detail=f"no complete answer within {timeout_s:g} s") from None
        finally:
            await client.close()

    return asyncio.run(exchange())


def is_repeatable(method: str, path: str) -> bool:
    """Whether a request may be sent twice. ``path`` may be as a client wrote it: escaped, with prefix and query.

    A completion only computes, so sending it twice is safe. A path that stores something is sent again only if the
    request surely never arrived.
    """
    if method in ("GET", "HEAD"):
        return True
    return method == "POST" and _STORES_RESPONSES not in unquote(path.partition("?")[0])


@lru_cache(maxsize=64)
def split_url(url: str) -> tuple[str, str]:
    """``http://host:port/path?query`` to its origin and the rest; anything else is a `ConfigurationError`."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigurationError(f"invalid server URL '{url}' (expected http://host:port)")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return f"{parts.scheme}://{parts.netloc}", target


def describe_fault(fault: HttpFault) -> str:
    """For a person at a command line: the system's own words where it gave some."""
    cause = fault.__cause__
    return f"{fault.kind}: {cause}" if isinstance(cause, OSError) and str(cause) else str(fault)


def request_head(method: str, path_and_query: str, host: bytes, headers: Headers, body: bytes) -> bytes:
    """The head as it is sent; one that could be read as two requests is a fault."""
    lines = [f"{method} {path_and_query} HTTP/1.1".encode("latin-1"), b"host: " + host]
    lines += [name + b": " + value for name, value in headers]
    if body or method in ("POST", "PUT", "PATCH"):
        lines.append(b"content-length: %d" % len(body))
    head = b"\r\n".join(lines)
    if head.count(b"\r") != len(lines) - 1 or head.count(b"\n") != len(lines) - 1 or " " in path_and_query:
        raise HttpFault("protocol", sent=False, detail="the request head contains a line break or a blank")
    return head + b"\r\n\r\n"
