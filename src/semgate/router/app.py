"""The router as an ASGI callable: clients' requests in, answers of replicas out; health on the same port.

Served by ``kvmend route`` or ``uvicorn apps.router.main:app``; the lifespan events start and stop it.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, Final

from sembase.errors import SemBlendError
from semgate.http.client_keys import Tenant
from semgate.http.departure import ClientWatch
from semgate.http.faults import Fault, RequestRefused, Send, send_fault, send_json
from semgate.http.headers import OF_THE_PLATFORM, Headers, for_upstream
from semgate.http.held_body import BodyBudget, HeldBody
from semgate.http.request_body import ClientGone, Receive, read_in_time
from semgate.http.served_paths import send_own_page
from semgate.router.gateway import Gateway
from semgate.router.request.admission import Admission
from semgate.router.request.answer import REQUEST_ID, Client, Inbound, request_id_of, routing_headers
from semgate.router.request.forward import ForwardJob
from semgate.router.request.trace import RequestTrace

Scope = MutableMapping[str, Any]
MODELS: Final = "/v1/models"


class RouterApp:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._admission = Admission(gateway.settings, gateway.clients)
        self._max_body_bytes = gateway.settings.max_body_bytes
        self.bodies = BodyBudget(self._max_body_bytes)
        # An unverified tenant header must not reach the replicas, which might trust it.
        untrusted = () if gateway.settings.trust_tenant_header else (b"x-tenant-id",)
        platform = frozenset() if gateway.settings.allow_engine_fields else OF_THE_PLATFORM
        self._dropped = frozenset({REQUEST_ID, *untrusted}) | platform

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
        fault = None
        try:
            await self._admit(scope, headers, request_id, receive, send)
        except RequestRefused as refused:
            fault = refused.fault
        except ClientGone:
            return
        if fault is not None:  # outside of the handler, whose traceback keeps the body
            await self._refuse(send, fault, request_id)

    async def _admit(self, scope: Scope, headers: Headers, request_id: str, receive: Receive, send: Send) -> None:
        tenant, fault = self._admission.tenant_of(headers)
        fault = fault or self._admission.refusal(scope["method"], scope["path"], headers)
        if fault is not None:
            raise RequestRefused(fault)
        name = self.gateway.inspector.tenant_name(tenant, headers)
        held = HeldBody(self.bodies, name)
        if tenant is not None:
            tenant.begin()
        try:
            await read_in_time(receive, headers, self._max_body_bytes, held)
            if scope["path"] == MODELS and scope["method"] == "GET" and (page := self.gateway.models.merged()):
                await send_json(send, 200, page, routing_headers(request_id, None))
                return
            await self._route(scope, headers, request_id, name, held, receive, send, tenant)
        finally:
            held.drop()
            if tenant is not None:
                tenant.end()

    async def _route(
        self,
        scope: Scope,
        headers: Headers,
        request_id: str,
        name: str,
        held: HeldBody,
        receive: Receive,
        send: Send,
        tenant: Tenant | None,
    ) -> None:
        gateway, trace = self.gateway, RequestTrace(request_id, self._admission.pattern_of(scope["path"]))
        asked, held.data = await gateway.inspector.inspect_request(scope["path"], headers, held, name)
        gateway.metrics.in_flight.inc()
        try:
            with ClientWatch(receive) as watch:
                trace.request = await gateway.evidence.collect(asked, held.data)
                asked = asked.without_prompt()
                held.drop_parsed()
                place = gateway.placements(trace.request, model=asked.model)
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
