"""The router as an ASGI callable: clients' requests in, answers of replicas out; health on the same port.

Served by ``semgate router`` or ``uvicorn apps.router.main:app``; the lifespan events start and stop it.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, Final

from sembase.errors import SemBlendError
from semgate.http.departure import ClientWatch
from semgate.http.faults import (
    BODIES_FULL,
    BODY_TIMEOUT,
    NO_METHOD,
    NO_UPGRADE,
    NOT_FOUND,
    TOO_LARGE,
    TWO_TENANTS,
    Fault,
    Send,
    send_fault,
)
from semgate.http.headers import Headers, find, for_upstream
from semgate.http.held_body import BodiesFull, BodyBudget, HeldBody
from semgate.http.request_body import BodyTooLarge, ClientGone, Receive, read_body
from semgate.http.served_paths import METHODS, ForwardedPaths, send_own_page
from semgate.http.tenant import AmbiguousTenant
from semgate.router.gateway import Gateway
from semgate.router.request.answer import REQUEST_ID, Client, Inbound, request_id_of, routing_headers
from semgate.router.request.forward import ForwardJob
from semgate.router.request.inspection import isolates_tenants
from semgate.router.request.trace import RequestTrace

Scope = MutableMapping[str, Any]
BODY_SECONDS: Final = 60.0
NOT_JSON: Final = Fault(400, "invalid_request_error", "not_json", "The body must be a JSON object in UTF-8.")
NOT_ISOLATED: Final = Fault(
    400,
    "invalid_request_error",
    "path_not_isolated",
    "Tenants cannot be isolated on this path; use /v1/chat/completions.",
)


class RouterApp:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._paths = ForwardedPaths(gateway.settings.pass_paths)
        self._max_body_bytes = gateway.settings.max_body_bytes
        self.bodies = BodyBudget(self._max_body_bytes)
        # An unverified tenant header must not reach the replicas, which might trust it.
        untrusted = () if gateway.settings.trust_tenant_header else (b"x-tenant-id",)
        self._dropped = frozenset({REQUEST_ID, *untrusted})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and not await send_own_page(send, scope["path"], self.gateway.readiness):
            await self._serve(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.gateway.start()
        except (SemBlendError, OSError) as error:
            await self.gateway.stop()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.gateway.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: Headers = tuple(scope["headers"])
        request_id = request_id_of(headers)
        held = HeldBody(self.bodies)
        try:
            fault = self._refusal(scope["method"], scope["path"], headers) or await self._read(receive, headers, held)
            if fault is not None:
                held.drop()
                await self._refuse(send, fault, request_id)
                return
            await self._route(scope, headers, request_id, held, receive, send)
        except ClientGone:
            return
        finally:
            held.drop()

    async def _read(self, receive: Receive, headers: Headers, held: HeldBody) -> Fault | None:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await read_body(receive, headers, self._max_body_bytes, held)
        except BodyTooLarge:
            return TOO_LARGE
        except BodiesFull:
            return BODIES_FULL
        except TimeoutError:
            return BODY_TIMEOUT
        return None

    def _refusal(self, method: str, path: str, headers: Headers) -> Fault | None:
        if find(headers, b"upgrade") is not None:  # our server never passes it; uvicorn's would read on in the body
            return NO_UPGRADE
        if self._paths.pattern_of(path) is None:
            return NOT_FOUND
        if method not in METHODS:
            return NO_METHOD
        if self.gateway.settings.inject_cache_salt and not isolates_tenants(path):
            return NOT_ISOLATED
        return None

    async def _route(
        self, scope: Scope, headers: Headers, request_id: str, held: HeldBody, receive: Receive, send: Send
    ) -> None:
        gateway, trace = self.gateway, RequestTrace(request_id, self._paths.pattern_of(scope["path"]) or "")
        try:
            inspected = await gateway.inspector.inspect_request(scope["path"], headers, held)
        except AmbiguousTenant:
            await self._refuse(send, TWO_TENANTS, request_id)
            return
        if inspected is None:
            await self._refuse(send, NOT_JSON, request_id)
            return
        asked, held.data = inspected
        del inspected  # it would keep the prompt in memory while the answer streams
        gateway.metrics.in_flight.inc()
        try:
            with ClientWatch(receive) as watch:
                trace.request = await gateway.evidence.collect(asked, held.data)
                asked = asked.without_prompt()
                held.drop_parsed()
                place = gateway.placements(trace.request)
                inbound = self._inbound(scope, headers, request_id, held)
                await gateway.forwarder.run(ForwardJob(inbound, place, Client(send, watch), trace, asked.stream))
        except ClientGone:
            trace.outcome = "client_left"
        except asyncio.CancelledError:  # the shutdown's limit
            trace.outcome = "refused" if trace.first_byte_s is None else "cut"
            raise
        finally:
            gateway.metrics.in_flight.dec()
            gateway.finished(asked, trace)

    def _inbound(self, scope: Scope, headers: Headers, request_id: str, held: HeldBody) -> Inbound:
        """The client's bytes and the headers that may reach the replica, under our request id."""
        forwarded = self.gateway.settings.forward_authorization
        allowed = for_upstream(headers, forward_authorization=forwarded, drop=self._dropped)
        query = scope["query_string"].decode("latin-1")
        target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        return Inbound(scope["method"], scope["path"], target, (*allowed, (REQUEST_ID, request_id.encode())), held)

    async def _refuse(self, send: Send, fault: Fault, request_id: str) -> None:
        self.gateway.metrics.requests.labels("refused", str(fault.status)).inc()
        await send_fault(send, fault, routing_headers(request_id, None))
