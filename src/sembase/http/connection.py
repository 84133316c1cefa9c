"""One connection to a server: a request's head and body in, a `StreamedReply` out, one at a time.

Called by `pool.py` and `client.py`. The only module of the client that needs httptools.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

import httptools

from sembase.http.reply import FaultKind, HttpFault, OnBody, StreamedReply

MAX_HEAD_BYTES: Final = 64 * 1024
_BODILESS: Final = (204, 304)


class ConnectionOwner(Protocol):
    """Gets a connection back when its reply is complete; the pool."""

    def released(self, connection: HttpConnection) -> None: ...

    def lost(self, connection: HttpConnection) -> None: ...


class HttpConnection(asyncio.Protocol):
    """Serves one request at a time; goes back to its owner when a reply is complete and the server keeps it open."""

    def __init__(self, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._reply: StreamedReply | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._in_head = False
        self._keep_alive = False
        self._until_close = False
        self._is_head = False
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_read_s: float | None = None
        self._idle_s = 0.0

    def start(
        self,
        head: bytes,
        body: bytes,
        *,
        is_head: bool,
        first_byte_seconds: float,
        idle_seconds: float,
        on_body: OnBody | None = None,
    ) -> StreamedReply:
        reply = self._reply = StreamedReply(self, self._loop, time.perf_counter(), on_body)
        self._is_head, self._until_close = is_head, False
        self._last_read_s, self._idle_s = None, idle_seconds
        self._timer = self._loop.call_later(first_byte_seconds, self._no_first_byte)
        transport = self._transport
        if transport is None or transport.is_closing():
            self._fail("reset", "closed before the request")
        elif len(body) > 16384:
            transport.writelines((head, body))
        else:
            transport.write(head + body)
        return reply

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        self._reply = None
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()

    def resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._last_read_s = self._loop.time()  # the reader caused the wait, not the server
            self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not a subclass

    def data_received(self, data: bytes) -> None:
        reply = self._reply
        if reply is None:  # no request is open, so the connection cannot be trusted any more
            self.abort()
            return
        reply.arrived(time.perf_counter())
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail("protocol", type(error).__name__)

    def eof_received(self) -> None:
        return None

    def connection_lost(self, error: Exception | None) -> None:
        transport, self._transport = self._transport, None
        if self._reply is not None:
            if self._until_close and error is None:
                self._finish(None)
            else:
                self._fail("reset", type(error).__name__ if error else "closed")
        self._stop_timer()
        if transport is not None:
            self._owner.lost(self)

    def on_message_begin(self) -> None:
        if self._reply is None:
            raise ValueError("the server sent a reply without a request")
        self._headers, self._head_bytes, self._in_head = [], 0, True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise ValueError("the reply head is too large")
        if self._in_head:  # after the body come trailers, which belong neither to this head nor to the next
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers, self._headers, self._in_head = tuple(self._headers), [], False
        reply = self._reply
        if reply is None or status < 200:  # 100 and 103 come before the reply
            return
        self._keep_alive = self._parser.should_keep_alive()
        self._until_close = status not in _BODILESS and not any(
            name in (b"content-length", b"transfer-encoding") for name, _ in headers
        )
        reply.begin(status, headers)
        if self._is_head:  # the parser would wait for the body that the length announces
            self._keep_alive = False
            self._finish(None)

    def on_body(self, body: bytes) -> None:
        reply = self._reply
        if reply is None:
            return
        if self._last_read_s is None:
            self._watch_idle()
        self._last_read_s = self._loop.time()
        if reply.take(body) and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._reply is not None and self._reply.status:
            self._finish(None)

    def _finish(self, fault: HttpFault | None) -> None:
        reply, self._reply = self._reply, None
        self._stop_timer()
        if reply is not None:
            reply.end(fault)
        transport = self._transport
        if transport is None:
            return
        if self._paused:
            self._paused = False
            transport.resume_reading()
        if fault is None and self._keep_alive and not transport.is_closing() and not transport.get_write_buffer_size():
            self._owner.released(self)
        else:
            transport.abort()

    def _fail(self, kind: FaultKind, detail: str) -> None:
        self._finish(HttpFault(kind, sent=True, detail=detail))

    def _no_first_byte(self) -> None:
        self._timer = None
        self._fail("timeout", "no first byte")

    def _watch_idle(self) -> None:
        """One timer for a whole stream: it compares with the time of the last byte instead of being reset by each."""
        self._stop_timer()
        self._timer = self._loop.call_later(self._idle_s, self._look_if_idle)

    def _look_if_idle(self) -> None:
        now_s = self._loop.time()
        due_s = now_s if self._paused else (self._last_read_s or now_s)
        due_s += self._idle_s
        self._timer = None
        if due_s <= now_s + 0.001:
            self._fail("timeout", "the stream stopped")
        else:
            self._timer = self._loop.call_at(due_s, self._look_if_idle)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
