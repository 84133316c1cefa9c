"""The live client: a request in, a timed reply out. Faults of server and network are statuses of a reply, not errors.

Used by the live replays and by ``run-load``. Importing this needs nothing optional; making a client needs ``httpx``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.registry import Registry
from sembench.http.decode import decode
from sembench.http.event_stream import EventStream
from sembench.http.reply import BROKEN_STREAM, OK, LiveReply, TokenLogprobs
from sembench.http.request import PATHS, Endpoint, LiveRequest, encode_body, encode_headers

if TYPE_CHECKING:
    from sembench.http.transport import HttpxTransport

_TRANSPORTS: Final[Registry[type[HttpxTransport]]] = Registry("http transport")
_TRANSPORTS.register("httpx", "sembench.http.transport:HttpxTransport")
_SECONDS_BETWEEN_POLLS: Final = 0.5
_POLL_SECONDS: Final = 5.0


class LiveClient:
    """An async context manager over one ``httpx.AsyncClient``. ``timeout_s`` bounds a request as a whole.

    ``base_url`` may end in ``/v1``; paths given to ``get`` and ``post`` start at the server's root.
    """

    def __init__(
        self, base_url: str, *, timeout_s: float, max_connections: int, headers: Mapping[str, str] | None = None
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"'{base_url}' is no address of a server; it looks like http://host:port")
        self.root_url = base_url.rstrip("/").removesuffix("/v1")
        try:
            transport = _TRANSPORTS.get("httpx")
        except ModuleNotFoundError:
            raise MissingDependencyError("httpx", "live", "a live run") from None
        self._transport = transport(timeout_s=timeout_s, max_connections=max_connections, headers=headers or {})

    async def ask(self, request: LiveRequest) -> LiveReply:
        """Never raises for what the server or the network does; ``CancelledError`` passes through."""
        body = encode_body(request)
        events = EventStream(request.endpoint, keep_all=request.keep_text)
        url = self._absolute(PATHS[request.endpoint])
        exchange = await self._transport.stream(url, encode_headers(request), body, events.feed)
        events.end(exchange.ended_at)
        decoded = decode(request.endpoint, events.lines)
        status, detail = exchange.status, exchange.detail
        if status == OK and (fault := decoded.fault or _unfinished(events)):
            status, detail = BROKEN_STREAM, fault
        sent_at = exchange.sent_at
        chunk_ms = tuple([1000.0 * (arrival - sent_at) for arrival in events.arrivals])
        return LiveReply(
            request_id=request.request_id,
            status=status,
            detail=detail,
            ttft_ms=chunk_ms[0] if chunk_ms else None,
            total_ms=1000.0 * (exchange.ended_at - sent_at),
            chunk_ms=chunk_ms,
            text=decoded.text if request.keep_text else "",
            prompt_tokens=decoded.prompt_tokens,
            completion_tokens=decoded.completion_tokens,
            cached_tokens=decoded.cached_tokens,
            headers=exchange.headers,
            logprobs=tuple(decoded.logprobs),
            backend=decoded.backend,
            sent_at=sent_at,
            wire_ms=None if exchange.wire_at is None else 1000.0 * (exchange.wire_at - sent_at),
        )

    async def post(self, url_or_path: str) -> tuple[int, bytes]:
        """An empty POST, such as a cache reset. No answer at all is a ``ConnectionError``."""
        return await self._transport.fetch("POST", self._absolute(url_or_path))

    async def get(self, url_or_path: str) -> tuple[int, bytes]:
        """No answer at all is a ``ConnectionError``."""
        return await self._transport.fetch("GET", self._absolute(url_or_path))

    async def wait_ready(self, seconds: float) -> str:
        """Waits for the server and returns the name of its first model, or "" if it serves but names none."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                async with asyncio.timeout(_POLL_SECONDS):
                    name, state = await self._poll()
            except (ConnectionError, TimeoutError) as error:
                name, state = None, str(error) or f"no answer within {_POLL_SECONDS:g} s"
            if name is not None:
                return name
            if time.monotonic() >= deadline:
                raise ConfigurationError(
                    f"{self.root_url} is not ready after {seconds:g} s ({state}); "
                    "start the server, or correct its address"
                )
            await asyncio.sleep(_SECONDS_BETWEEN_POLLS)

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, traceback)

    async def _poll(self) -> tuple[str | None, str]:
        code, body = await self.get("/v1/models")
        if code == 200:
            return _model_name(body), "no list of models under /v1/models"
        if code in (401, 403):
            raise ConfigurationError(f"{self.root_url} refuses /v1/models with {code}; pass the header it asks for")
        if code not in (404, 405, 501):  # there is a list of models, but not yet
            return None, f"/v1/models answers {code}"
        health, _ = await self.get("/health")
        return ("" if health == 200 else None), f"/v1/models answers {code}, /health {health}"

    def _absolute(self, url_or_path: str) -> str:
        return url_or_path if "://" in url_or_path else f"{self.root_url}/{url_or_path.lstrip('/')}"


def _unfinished(events: EventStream) -> str:
    return "" if events.done else "the stream ended without [DONE]"


def _model_name(body: bytes) -> str | None:
    try:
        models = json.loads(body)["data"]
        return str(models[0]["id"]) if models else ""
    except (ValueError, LookupError, TypeError):
        return None


__all__ = ["Endpoint", "LiveClient", "LiveReply", "LiveRequest", "TokenLogprobs"]
