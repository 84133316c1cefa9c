"""The proxy as an ASGI callable: a client's request in, the upstream's reply out unchanged, an exchange to the writer.

Served by ``kvmend proxy`` or ``uvicorn apps.proxy.main:app``; opened and closed by `ProxyService`.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from sembase.http.client import HttpClient, HttpFault, StreamedReply
from semgate.http.departure import ClientWatch
from semgate.http.faults import (
    BUSY,
    NO_METHOD,
    NO_UPGRADE,
    NOT_FOUND,
    Fault,
    RequestRefused,
    Send,
    event_of,
    fault_of,
    send_fault,
)
from semgate.http.first_byte import shifted, with_first
from semgate.http.headers import Headers, find, for_client, for_upstream
from semgate.http.held_body import BodyBudget, HeldBody
from semgate.http.reply_scan import ReplyScan
from semgate.http.request_body import ClientGone, Receive, read_in_time
from semgate.http.served_paths import ForwardedPaths, allows, send_own_page
from semgate.http.tenant import TenantRule
from semgate.proxy.exchange import Exchange
from semgate.proxy.guard import ProxyGuard
from semgate.proxy.telemetry import ProxyTelemetry
from semgate.proxy.writer import TraceWriter

Scope = MutableMapping[str, Any]
RECORDED_PATHS: Final = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/generate"})
NO_PATH: Final = "other"  # label of paths that are not on the fixed list


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """Where requests go and which may pass. ``base_path`` is prepended to every path."""

    origin: str
    base_path: str
    paths: tuple[str, ...]
    forward_authorization: bool
    max_body_bytes: int
    max_in_flight: int
    min_first_byte_s: float = 0.0


class ProxyApp:
    """Per chunk it only forwards and scans."""

    def __init__(
        self,
        passing: Passing,
        upstream: HttpClient,
        tenants: TenantRule,
        writer: TraceWriter,
        telemetry: ProxyTelemetry,
        guard: ProxyGuard | None = None,
    ) -> None:
        self._passing = passing
        self._upstream = upstream
        self._tenants = tenants
        self._writer = writer
        self._telemetry = telemetry
        self._guard = guard
        self._paths = ForwardedPaths(passing.paths)
        self.bodies = BodyBudget(passing.max_body_bytes)
        self.is_ready = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        label = self._paths.pattern_of(path)
        if label is None:
            if not await send_own_page(send, path, self.readiness):
                await self._refuse(send, NO_PATH, NOT_FOUND)
        elif not allows(method, path):
            await self._refuse(send, label, NO_METHOD)
        elif find(scope["headers"], b"upgrade") is not None:  # our server never passes it; uvicorn's would read on
            await self._refuse(send, label, NO_UPGRADE)
        elif self._telemetry.in_flight >= self._passing.max_in_flight:
            await self._refuse(send, label, BUSY)
        else:
            self._telemetry.in_flight += 1
            try:
                await self._pass(scope, label, receive, send)
            finally:
                self._telemetry.in_flight -= 1

    async def _pass(self, scope: Scope, label: str, receive: Receive, send: Send) -> None:
        headers: Headers = tuple(scope["headers"])
        fault = None
        try:
            tenant = self._tenants.tenant_of(headers)
            held = HeldBody(self.bodies, tenant)
            try:
                body = await read_in_time(receive, headers, self._passing.max_body_bytes, held)
                await self._pass_body(scope, label, headers, body, tenant, receive, send)
            finally:
                held.drop()  # the writer's queue accounts for it from here on
        except RequestRefused as refused:
            fault = refused.fault
        except ClientGone:
            self._telemetry.count(label, None, "client_left")
        if fault is not None:  # outside of the handler, whose traceback keeps the body
            await self._refuse(send, label, fault)

    async def _pass_body(
        self, scope: Scope, label: str, headers: Headers, body: bytes, tenant: str, receive: Receive, send: Send
    ) -> None:
        exchange = Exchange(label, headers, body, tenant, 1000.0 * time.time(), time.perf_counter())
        try:
            with ClientWatch(receive) as watch:
                await self._exchange(scope, exchange, watch, send)
        except ClientGone:
            exchange.outcome = "client_left"
        finally:
            exchange.ended_s = exchange.ended_s or time.perf_counter()
            self._telemetry.observe(exchange)
            if label in RECORDED_PATHS and scope["method"] == "POST":
                self._writer.put(exchange)

    async def _exchange(self, scope: Scope, exchange: Exchange, watch: ClientWatch, send: Send) -> None:
        passing = self._passing
        query = scope["query_string"]
        target = (
            passing.base_path + scope["raw_path"].decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
        )
        headers = for_upstream(exchange.headers, forward_authorization=passing.forward_authorization)
        try:
            reply = await self._upstream.send(passing.origin, scope["method"], target, headers, exchange.body)
        except HttpFault as fault:
            exchange.fault, exchange.status = fault.kind, fault_of(fault).status
            watch.stop()
            await send_fault(send, fault_of(fault))
            return
        try:
            await self._relay(reply, exchange, watch, send)
        except HttpFault as fault:
            exchange.fault = fault.kind
            watch.stop()
            await _end_cut(send, fault_of(fault), exchange)
        finally:
            await reply.abort()
        if self._guard is not None:
            self._guard.offer(exchange, headers)

    async def _relay(self, reply: StreamedReply, exchange: Exchange, watch: ClientWatch, send: Send) -> None:
        """Forwards each chunk as soon as it arrives, and scans it afterwards."""
        exchange.status = reply.status
        kind = find(reply.headers, b"content-type") or b""
        scan = exchange.scan = ReplyScan(is_event_stream=kind.startswith(b"text/event-stream"))
        chunks = reply.chunks()
        if not (min_first_byte_s := self._passing.min_first_byte_s):
            await self._pass_on(reply, chunks, scan, exchange, watch, send)
            return
        first = await anext(chunks, b"")  # engines send the head before they compute, so the head is held too
        async with shifted(chunks, exchange.asked_s + min_first_byte_s - time.perf_counter()) as rest:
            await self._pass_on(reply, with_first(first, rest), scan, exchange, watch, send)

    async def _pass_on(
        self,
        reply: StreamedReply,
        chunks: AsyncIterator[bytes],
        scan: ReplyScan,
        exchange: Exchange,
        watch: ClientWatch,
        send: Send,
    ) -> None:
        feed, clock, telemetry = scan.feed, time.perf_counter, self._telemetry
        is_direct = chunks is reply  # otherwise the reply is complete before its last chunk is passed on
        await send({"type": "http.response.start", "status": reply.status, "headers": for_client(reply.headers)})
        async for chunk in chunks:
            now_s = clock()
            is_last = is_direct and reply.is_complete
            if is_last:
                watch.stop()
            await send({"type": "http.response.body", "body": chunk, "more_body": not is_last})
            feed(chunk, now_s)
            telemetry.answer_bytes += len(chunk)
            if exchange.first_byte_s is None:
                exchange.first_byte_s = now_s
            if is_last:
                break
        else:
            watch.stop()
            now_s = clock()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        exchange.ended_s = now_s
        exchange.outcome = "ok" if reply.status < 400 else "http_error"
        if exchange.outcome == "ok" and scan.ended_in_error:
            exchange.outcome = "stream_error"

    async def _refuse(self, send: Send, label: str, fault: Fault) -> None:
        self._telemetry.count(label, fault.status, "refused")
        await send_fault(send, fault)

    def readiness(self) -> dict[str, str]:
        return {"status": "ready" if self.is_ready else "stopping"}


async def _end_cut(send: Send, fault: Fault, exchange: Exchange) -> None:
    """The reply has begun, so its status cannot change. An event stream still gets the reason as an event. The body
    stays unfinished and the server closes the connection, so that no client mistakes it for complete."""
    if exchange.scan is not None and exchange.scan.is_event_stream:
        separator = b"" if exchange.scan.at_event_border else b"\n\n"
        await send({"type": "http.response.body", "body": separator + event_of(fault), "more_body": True})
