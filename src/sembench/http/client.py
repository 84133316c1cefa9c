"""The live client: a request in, a timed reply out. Faults of server and network are statuses of a reply, not errors.

Used by the live replays and by ``run-load``. Importing this needs nothing optional; making a client needs httptools.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

from sembase.errors import ConfigurationError
from sembase.http.client import Headers, HttpClient, HttpFault, StreamedReply, describe_fault, split_url
from sembase.http.event_stream import EventScanner
from sembase.http.reply import OnBody
from sembase.streams import write_err
from sembench import __version__
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
        pieces: list[bytes] = []
        feed: OnBody = events.feed if request.stream else lambda data, now: pieces.append(data)
        exchange = await self._stream(self._absolute(PATHS[request.endpoint]), encode_headers(request), body, feed)
        events.end(exchange.ended_at)
        decoded = decode(request.endpoint, events.lines if request.stream else [b"".join(pieces)])
        status, detail = exchange.status, exchange.detail
        if status == OK and (fault := decoded.fault or (_unfinished(events) if request.stream else "")):
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
        """Waits for the server and returns the name of its first model, or "" if it serves but names none.

        Says on stderr, once, that it waits and why."""
        deadline = time.monotonic() + seconds
        reported = False
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
            if not reported:
                reported = True
                write_err(f"waiting up to {seconds:g} s for {self.root_url} ({state})\n")
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
            raise ConfigurationError(
                f"{self.root_url} refuses /v1/models with {code}; pass the header it requires with --header"
            )
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


@dataclass(slots=True)
class Decoded:
    """What a finished stream, or an answer in one piece, said: text, usage, log-probabilities, backend report, or the
    server's error.

    ``tool_calls`` are the calls that a server sends apart from the text, by index, joined from their pieces.
    """

    text: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    backend: Mapping[str, Any] | None = None
    fault: str = ""
    tool_calls: dict[int, dict[str, str]] = field(default_factory=dict)


def decode(endpoint: Endpoint, payloads: Iterable[bytes]) -> Decoded:
    """Never raises: what does not have the expected shape is not measured, and what is not JSON is a broken stream."""
    decoded = Decoded()
    pieces: list[str] = []
    for payload in payloads:
        try:
            event = json.loads(payload)
        except (ValueError, RecursionError) as error:
            decoded.fault = f"an event is not JSON: {error}"
            continue
        if not isinstance(event, dict):
            continue
        if fault := _fault(event):
            decoded.fault = fault
        elif endpoint == "sglang_generate":
            _take_generated(decoded, event)
        else:
            pieces.append(_take_choice(decoded, event))
    decoded.text = decoded.text or "".join([*pieces, _tool_call_text(decoded.tool_calls)])
    return decoded


def _tool_call_text(calls: Mapping[int, Mapping[str, str]]) -> str:
    """The calls as one JSON value after the text: an object, or a list of several."""
    ordered = [{"name": "", **calls[index]} for index in sorted(calls)]
    return f"\n{json.dumps(ordered[0] if len(ordered) == 1 else ordered, ensure_ascii=False)}" if ordered else ""


def _take_choice(decoded: Decoded, event: Mapping[str, Any]) -> str:
    usage = _object(event.get("usage"))
    if usage:
        decoded.prompt_tokens = _count(usage.get("prompt_tokens"))
        decoded.completion_tokens = _count(usage.get("completion_tokens"))
        decoded.cached_tokens = _count(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    if evidence := _object(_object(event.get("kv_transfer_params")).get("semblend")):
        decoded.backend = evidence
    choice = _object(next(iter(_list(event.get("choices"))), None))
    logprobs = _object(choice.get("logprobs"))
    decoded.logprobs += _chat_logprobs(logprobs) if "content" in logprobs else _completion_logprobs(logprobs)
    delta = _object(choice.get("delta") or choice.get("message"))
    for position, piece in enumerate(map(_object, _list(delta.get("tool_calls")))):
        call = decoded.tool_calls.setdefault(_count(piece.get("index", position)) or 0, {"arguments": ""})
        for key, value in _object(piece.get("function")).items():
            if key in ("name", "arguments") and isinstance(value, str):
                call[key] = call.get(key, "") + value
    pieces = (delta.get("reasoning_content") or delta.get("reasoning"), delta.get("content"), choice.get("text"))
    return "".join(piece for piece in pieces if isinstance(piece, str))


def _take_generated(decoded: Decoded, event: Mapping[str, Any]) -> None:
    """Each event holds everything so far, so the last one counts."""
    meta = _object(event.get("meta_info"))
    decoded.text = event["text"] if isinstance(event.get("text"), str) else decoded.text
    decoded.prompt_tokens = _count(meta.get("prompt_tokens"))
    decoded.completion_tokens = _count(meta.get("completion_tokens"))
    decoded.cached_tokens = _count(meta.get("cached_tokens"))
    # Our adapter reports with the first token only, in a list with one entry per token.
    earlier = _object(_object(decoded.backend).get("semblend"))
    reported = next(filter(None, map(_object, _list(meta.get("semblend")))), earlier)
    fields = {key: value for key, value in meta.items() if not key.endswith("logprobs")}
    decoded.backend = (fields | {"semblend": reported, **reported} if reported else fields) or None
    tops = _list(meta.get("output_top_logprobs"))
    decoded.logprobs = [
        TokenLogprobs(name, value, dict(filter(None, map(_sglang_token, _list(tops[i] if i < len(tops) else None)))))
        for i, entry in enumerate(_list(meta.get("output_token_logprobs")))
        if (named := _sglang_token(entry)) is not None
        for name, value in (named,)
    ]


def _sglang_token(entry: object) -> tuple[str, float] | None:
    """``[logprob, token id, text or null]``."""
    values = _list(entry)
    logprob = _float(values[0]) if len(values) >= 2 else None
    if logprob is None:
        return None
    return str(values[2] if len(values) > 2 and values[2] is not None else values[1]), logprob


def _chat_logprobs(logprobs: Mapping[str, Any]) -> list[TokenLogprobs]:
    found = []
    for entry in map(_object, _list(logprobs.get("content"))):
        logprob = _float(entry.get("logprob"))
        if logprob is None:
            continue
        alternatives = (
            (_object(top).get("token"), _float(_object(top).get("logprob"))) for top in _list(entry.get("top_logprobs"))
        )
        top = {str(token): value for token, value in alternatives if value is not None}
        found.append(TokenLogprobs(str(entry.get("token")), logprob, top))
    return found


def _completion_logprobs(logprobs: Mapping[str, Any]) -> list[TokenLogprobs]:
    tokens, values = _list(logprobs.get("tokens")), _list(logprobs.get("token_logprobs"))
    tops = _list(logprobs.get("top_logprobs"))
    found = []
    for i, (token, value) in enumerate(zip(tokens, values, strict=False)):
        logprob = _float(value)
        if logprob is None:
            continue
        top = _object(tops[i] if i < len(tops) else None)
        found.append(TokenLogprobs(str(token), logprob, {k: v for k, v in top.items() if _float(v) is not None}))
    return found


def _fault(event: Mapping[str, Any]) -> str:
    """``{"error": {...}}`` or, in older servers, ``{"object": "error", ...}``."""
    error = event if event.get("object") == "error" else event.get("error")
    if not error:
        return ""
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
