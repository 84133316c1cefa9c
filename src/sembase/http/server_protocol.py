"""uvicorn's httptools protocol with the limits it lacks: size of the head, slow heads, stalled readers, connections.

Each limit is a timer per connection or a number; none costs anything per chunk. The time of a request counts from its
first byte, that of the first one from the connection.

One request of a connection is served at a time, and none is parsed ahead. Bytes that begin another request before the
client has its answer are dropped, and the connection closes after that answer: `docs/adr/0031-nothing-is-pipelined.md`.
Reading continues meanwhile, so a client that leaves is noticed whatever it sent ahead.

No protocol is upgraded to. httptools ends a request that asks for one at its head, and would read its body as the next
request; such a head is therefore parsed again without the request for an upgrade.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import httptools
import uvicorn
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from sembase.errors import MissingDependencyError
from sembase.http.faults import BAD_REQUEST, BUSY, HEAD_TOO_LARGE, INTERNAL, Fault, send_fault

# The versions the tests were run with, from the first to the last; the extras `gateway` and `service` have them too.
# Below 0.45 uvicorn has no `_start_asgi_task`, so `ServerProtocol` would take every stream for a slow request head.
UVICORN_LOWEST: Final = "0.45.0"
UVICORN_HIGHEST: Final = "0.54.0"
MAX_HEADERS: Final = 128
_LINE_BYTES: Final = 4  # of a header beside its name and value: colon, blank, CR, LF
_LOGGER: Final = logging.getLogger("semgate")
_UPGRADE: Final = frozenset({b"upgrade", b"http2-settings"})
_REASONS: Final = {400: b"Bad Request", 431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Limits:
    """``head_seconds`` and ``body_seconds`` to send a request; ``stall_seconds`` for a client that reads nothing.

    ``max_head_bytes`` counts as on the wire, with separators, and includes trailers."""

    max_connections: int = 10_000
    max_head_bytes: int = 64 * 1024
    head_seconds: float = 20.0
    body_seconds: float = 60.0
    stall_seconds: float = 120.0


def check_uvicorn(extra: str) -> None:
    """Raise unless this module has been run with the installed uvicorn. Called before the server listens.

    ``extra``: of this project, the one that installs a right version."""
    installed = uvicorn.__version__
    if not _release(UVICORN_LOWEST) <= _release(installed) <= _release(UVICORN_HIGHEST):
        supported = f"uvicorn>={UVICORN_LOWEST},<={UVICORN_HIGHEST}"
        raise MissingDependencyError(supported, extra, f"the {extra} cannot use uvicorn {installed}: it")


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version; a suffix such as ``rc1`` or ``.post1`` does not count."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()


class NotesDeparture:
    """The owner of ``receive`` on this server, which calls ``on_departure`` when the connection is lost."""

    on_departure: Callable[[], None] | None = None
    disconnected: bool = False


class _PipelinedError(Exception):
    """Stops the parser where a second request begins. The parser cannot continue after that."""


class _TooLargeError(Exception):
    pass


class ServerProtocol(HttpToolsProtocol):
    def __init__(
        self, config: Config, server_state: ServerState, limits: Limits, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(config=config, server_state=server_state, app_state={}, _loop=loop)
        self.logger = _UVICORN
        self._limits = limits
        self._head_bytes = self._header_count = 0
        self._in_head = False
        self._asks_upgrade = False
        self._running: _Cycle | None = None
        self._is_pipelining = False
        self._early = b""  # came after the last byte of an answer, before the app had ended it
        self._request_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            self._refuse(BUSY)
        else:
            self._allow(self._limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._received()
        self._stop_stall_timer()
        super().connection_lost(exc)
        running, self._running = self._running, None
        if running is not None and not running.response_complete:
            running.disconnected = True
            if running.on_departure is not None:
                running.on_departure()

    def data_received(self, data: bytes) -> None:
        if self.parser is None or self.transport.is_closing() or self._is_pipelining:
            return
        running = self._running
        if running is not None and running.has_sent_all and not self.transport.get_write_buffer_size():
            self._early += data
            self.flow.pause_reading()
            return
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _PipelinedError):
                self._is_pipelining, self.cycle.keep_alive = True, False
            else:
                self._refuse(HEAD_TOO_LARGE if isinstance(error.__context__, _TooLargeError) else BAD_REQUEST)
        # Any byte ends the wait for the next request, so bytes that begin no request need a limit of their own.
        if self._request_timer is None and not self._is_replying:
            self._allow(self._limits.head_seconds)

    def _parse(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as stopped:
                rest = rest[stopped.args[0] :]
                head = _without_upgrade(self.parser.get_method(), self.url, self.scope["http_version"], self.headers)
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
                self.parser.feed_data(head)

    def on_message_begin(self) -> None:
        if self._is_replying:
            raise _PipelinedError
        super().on_message_begin()
        self._received()
        self._asks_upgrade = False
        self._head_bytes, self._header_count, self._in_head = 0, 0, True

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._count(len(name) + len(value) + _LINE_BYTES)
        if not self._in_head:  # a trailer could name a tenant after the headers were checked
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def _count(self, more_bytes: int) -> None:
        self._head_bytes += more_bytes
        if self._head_bytes > self._limits.max_head_bytes or self._header_count > MAX_HEADERS:
            raise _TooLargeError

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise ValueError("a tunnel is not offered")
            self.scope["http_version"] = self.parser.get_http_version()
            self._asks_upgrade = True
            return
        _check_host(self.headers, self.parser.get_http_version())
        super().on_headers_complete()
        self._allow(self._limits.body_seconds)

    def on_message_complete(self) -> None:
        if self._asks_upgrade:
            return
        self._received()
        super().on_message_complete()
        self.flow.resume_reading()  # uvicorn stopped reading for a large body, and would miss a disconnect

    def on_response_complete(self) -> None:
        super().on_response_complete()
        early, self._early = self._early, b""
        if early:
            self.data_received(early)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self._limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall_timer()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.__class__ = _Cycle
        self._running = cast(_Cycle, cycle)
        super()._start_asgi_task(cycle, app)

    @property
    def is_stalled(self) -> bool:
        """The client reads nothing: anything sent now would wait for it."""
        return self._stall_timer is not None

    @property
    def _is_replying(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _allow(self, seconds: float) -> None:
        self._received()
        self._request_timer = self.loop.call_later(seconds, self.transport.abort)

    def _received(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _refuse(self, fault: Fault) -> None:
        """Answers without the app: the request cannot be read, or must not be."""
        body = fault.body()
        head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (fault.status, _REASONS[fault.status], len(body)) + body)
        self.transport.close()


def _without_upgrade(method: bytes, url: bytes, version: str, headers: list[tuple[bytes, bytes]]) -> bytes:
    """The head again, as it was parsed, without the request for another protocol."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    for name, value in headers:
        kept = value
        if name == b"connection":
            kept = b", ".join(word for each in value.split(b",") if (word := each.strip()).lower() not in _UPGRADE)
        if name not in _UPGRADE and (kept or not value):
            lines.append(name + b": " + kept)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _check_host(headers: list[tuple[bytes, bytes]], version: str) -> None:
    """RFC 9112, 3.2: exactly one Host. Two would let a front and this server see different ones."""
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        raise ValueError("the request must have one host header")


class _Cycle(NotesDeparture, RequestResponseCycle):
    @property
    def has_sent_all(self) -> bool:
        """Nothing but the app's own end is missing: a client that knows the length may send its next request."""
        if not self.response_started or self.response_complete or self.more_body:
            return False
        return self.scope["method"] == "HEAD" or not (self.chunked_encoding or self.expected_content_length)

    async def send(self, message: Any) -> None:
        """The usual case, a chunk in the middle of a reply, skips the checks made at its start."""
        is_open = not (self.flow.write_paused or self.disconnected or self.response_complete)
        if is_open and self.chunked_encoding and message.get("more_body"):
            body = message["body"]
            if body:
                self.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        else:
            await super().send(message)

    async def send_500_response(self) -> None:
        send: Any = self.send
        await send_fault(send, INTERNAL)


class _ExceptionNames(logging.Handler):
    """Of uvicorn's log, only the app's exceptions, and only their type and place: messages may quote request text."""

    def emit(self, record: logging.LogRecord) -> None:
        if not record.exc_info or record.exc_info[1] is None or isinstance(record.exc_info[1], asyncio.CancelledError):
            return
        error, frame = record.exc_info[1], record.exc_info[1].__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}" if frame is not None else "unknown"
        fields = {"exception": type(error).__name__, "place": place}
        _LOGGER.error("the app failed", extra={"fields": fields})


def _uvicorn_logger() -> logging.Logger:
    logger = logging.Logger("semgate.http.uvicorn", level=logging.ERROR)
    logger.addHandler(_ExceptionNames())
    return logger


_UVICORN: Final = _uvicorn_logger()
