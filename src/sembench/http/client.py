"""The live client: a request in, a timed reply out. Faults of server and network are statuses of a reply, not errors.

Used by the live replays and by ``run-load``. Importing this needs nothing optional; making a client needs httptools.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from sembase.errors import ConfigurationError
from sembase.http.client import Headers, HttpClient, HttpFault, StreamedReply, describe_fault, split_url
from sembase.http.event_stream import EventScanner
from sembase.http.reply import OnBody
from sembench import __version__
from sembench.http.decode import decode
from sembench.http.reply import BROKEN_STREAM, CONNECTION, OK, TIMEOUT, LiveReply, TokenLogprobs
from sembench.http.request import PATHS, Endpoint, LiveRequest, encode_body, encode_headers

_SECONDS_BETWEEN_POLLS: Final = 0.5
_POLL_SECONDS: Final = 5.0
_DETAIL_CHARS: Final = 300
_MAX_DETAIL_BYTES: Final = 64 << 10
_JSON: Final = (b"content-type", b"application/json")


class LiveClient:
    """An async context manager over one `HttpClient`. ``timeout_s`` bounds a request as a whole.

    ``base_url`` may end in ``/v1``; paths given to ``get`` and ``post`` start at the server's root. At most
    ``max_connections`` are open to the server; further requests wait for one.
    """

    def __init__(
        self, base_url: str, *, timeout_s: float, max_connections: int, headers: Mapping[str, str] | None = None
    ) -> None:
        split_url(base_url)
        self.root_url = base_url.rstrip("/").removesuffix("/v1")
        self._timeout_s = timeout_s
        # identity: a compressed stream would be timed by its blocks, not by its tokens.
        always = {"user-agent": f"sembench/{__version__}", "accept-encoding": "identity", **(headers or {})}
        self._headers: Headers = tuple((name.lower().encode(), value.encode()) for name, value in always.items())
        # The limits of the single steps are longer than that of the whole request, which therefore always ends it.
        step_s = 2.0 * timeout_s
        self._http = HttpClient(
            connect_seconds=step_s,
            first_byte_seconds=step_s,
            idle_seconds=step_s,
            max_connections_per_origin=max_connections,
        )

    async def ask(self, request: LiveRequest) -> LiveReply:
        """Never raises for what the server or the network does; ``CancelledError`` passes through."""
        body = encode_body(request)
        events = EventScanner(keep="all" if request.keep_text else "final")
        exchange = await self._stream(
            self._absolute(PATHS[request.endpoint]), encode_headers(request), body, events.feed
        )
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
        """An empty POST, such as a cache reset. Without any answer it raises ``ConnectionError``."""
        return await self._fetch("POST", self._absolute(url_or_path))

    async def get(self, url_or_path: str) -> tuple[int, bytes]:
        """Without any answer it raises ``ConnectionError``."""
        return await self._fetch("GET", self._absolute(url_or_path))

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
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.close()

    async def _stream(self, url: str, headers: Headers, body: bytes, feed: OnBody) -> _Exchange:
        """POST ``body``; every piece of a 2xx answer goes to ``feed`` with the time it was read from the socket.

        That time is taken before any task wakes: with a thousand streams in one process a task may wake long after its
        bytes were read, and that wait is the client's, not the server's.
        """
        clock = time.perf_counter
        origin, target = split_url(url)
        status, detail = OK, ""
        reply: StreamedReply | None = None
        ended_at = sent_at = clock()
        try:
            async with asyncio.timeout(self._timeout_s):
                reply = await self._http.send(
                    origin, "POST", target, (*self._headers, _JSON, *headers), body, on_body=feed
                )
                rest = await reply.read(_MAX_DETAIL_BYTES)
                if not 200 <= reply.status < 300:
                    status, detail = f"http_{reply.status}", rest.decode("utf-8", "replace")[:_DETAIL_CHARS]
                ended_at = reply.read_at
        except TimeoutError:
            status, detail, ended_at = TIMEOUT, f"no complete answer within {self._timeout_s:g} s", clock()
        except HttpFault as fault:
            status = CONNECTION if reply is None else BROKEN_STREAM
            detail, ended_at = describe_fault(fault), clock()
        finally:
            if reply is not None:
                reply.abort_now()
        return _Exchange(
            status=status,
            detail=detail,
            sent_at=sent_at,
            wire_at=None if reply is None else reply.sent_at,
            ended_at=ended_at,
            headers={} if reply is None else _x_headers(reply.headers),
        )

    async def _fetch(self, method: str, url: str) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._http.fetch(method, url, headers=self._headers)
        except TimeoutError:
            raise ConnectionError(f"{method} {url}: no answer within {self._timeout_s:g} s") from None
        except HttpFault as fault:
            raise ConnectionError(f"{method} {url}: {describe_fault(fault)}") from None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exchange:
    """One HTTP exchange: how it ended, its times on the clock of ``time.perf_counter``, its ``x-*`` headers.

    ``wire_at`` is when the request was written to the socket; until then the client was busy or connecting.
    """

    status: str
    detail: str
    sent_at: float
    wire_at: float | None
    ended_at: float
    headers: Mapping[str, str]


def _x_headers(headers: Headers) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name.startswith(b"x-")}


def _unfinished(events: EventScanner) -> str:
    return "" if events.done else "the stream ended without [DONE]"


def _model_name(body: bytes) -> str | None:
    try:
        models = json.loads(body)["data"]
        return str(models[0]["id"]) if models else ""
    except (ValueError, LookupError, TypeError):
        return None


__all__ = ["Endpoint", "LiveClient", "LiveReply", "LiveRequest", "TokenLogprobs"]
