"""A request in, the endpoints that should serve it out; then what the data plane reports of the answer, until its end.

Uses the router's own inspection, evidence, placement and records; knows no transport. One ``Picker`` per gateway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from sembase.http.credentials import KeptCredentials
from semgate.fleet import Replica
from semgate.http.client_keys import Tenant
from semgate.http.faults import BODY_TIMEOUT, TOO_LARGE, Fault, RequestRefused
from semgate.http.headers import ADMIN_KEY, CREDENTIALS, Headers
from semgate.http.held_body import BodyBudget, HeldBody
from semgate.http.reply_scan import ReplyScan
from semgate.http.request_body import BODY_SECONDS, Asked
from semgate.placement.decision import Decision, NoUsableReplicaError
from semgate.router.gateway import Gateway
from semgate.router.request.admission import Admission
from semgate.router.request.answer import REQUEST_ID, request_id_of
from semgate.router.request.forward import FAULTY_STATUS, NO_REPLICA
from semgate.router.request.placement import Placement
from semgate.router.request.trace import RequestTrace

DESTINATION: Final = b"x-gateway-destination-endpoint"
SUBSET: Final = b"x-gateway-destination-endpoint-subset"
SERVED: Final = b"x-gateway-destination-endpoint-served"
# What a client must not say to an engine. Forwarding headers are left out: the data plane has written them itself.
_OF_THE_PLATFORM: Final = frozenset({b"x-data-parallel-rank", b"x-prefiller-host-port", SUBSET, SERVED})
_CAN_SERVE: Final = ("ready", "half_open")


@dataclass(frozen=True, slots=True)
class RequestHead:
    """``path`` decoded, without its query; names of headers in lower case."""

    method: str
    path: str
    headers: Headers


class Picker:
    def __init__(self, gateway: Gateway) -> None:
        settings = gateway.settings
        self.gateway = gateway
        self.bodies = BodyBudget(settings.max_body_bytes)
        self.admission = Admission(settings, gateway.clients)
        self._credentials = KeptCredentials(settings.upstream_credentials())
        removed = {ADMIN_KEY} if settings.forward_authorization else {ADMIN_KEY, *CREDENTIALS}
        if not settings.allow_engine_fields:
            removed |= _OF_THE_PLATFORM
        if not settings.trust_tenant_header:
            removed.add(b"x-tenant-id")
        self._removed = frozenset(removed)

    def open(self, head: RequestHead) -> PickJob | Fault:
        """Decides by the headers alone whether the request is refused; a job must be closed."""
        tenant, fault = self.admission.tenant_of(head.headers)
        fault = fault or self.admission.refusal(head.method, head.path, head.headers)
        if fault is not None:
            return self.refused(fault)
        try:
            name = self.gateway.inspector.tenant_name(tenant, head.headers)
        except RequestRefused as refused:
            return self.refused(refused.fault)
        if tenant is not None:
            tenant.begin()
        return PickJob(self, head, tenant, name)

    def refused(self, fault: Fault) -> Fault:
        self.gateway.metrics.requests.labels("refused", str(fault.status)).inc()
        return fault

    def header_changes(self, head: RequestHead) -> tuple[Headers, tuple[bytes, ...]]:
        """Headers to set and names to remove before an engine sees the request."""
        return self._credentials.headers(()), tuple(name for name, _ in head.headers if name in self._removed)

    def names_of(self, endpoints: Iterable[str]) -> frozenset[str]:
        wanted = frozenset(endpoints)
        return frozenset(each.name for each in self.gateway.roster.fleet if endpoint_of(each) in wanted)

    def has_ready(self, allowed: frozenset[str] | None) -> bool:
        views = self.gateway.roster.fleet.views()
        return any(each.state in _CAN_SERVE and (allowed is None or each.name in allowed) for each in views)

    def endpoints(self, decision: Decision, allowed: frozenset[str] | None) -> tuple[str, ...]:
        """The chosen replica, then the next best, for a data plane that retries."""
        names = [decision.replica, *(name for name, _ in decision.scores_ms if name != decision.replica)]
        found = (self.gateway.roster.fleet.find(name) for name in names if allowed is None or name in allowed)
        most = max(self.gateway.settings.max_attempts, 1)
        return tuple(endpoint_of(each) for each in found if each is not None)[:most]


class PickJob:
    """One request, from its headers to the end of its answer. ``close`` may be called more than once."""

    def __init__(self, picker: Picker, head: RequestHead, tenant: Tenant | None, name: str) -> None:
        self.endpoints: tuple[str, ...] = ()
        self.body = b""
        self.is_changed = False
        self._picker = picker
        self._head = head
        self._tenant = tenant
        self._name = name
        self._held = HeldBody(picker.bodies, name)
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self._asked: Asked | None = None
        self._placement: Placement | None = None
        self._scan: ReplyScan | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began_s = time.perf_counter()
        pattern = picker.admission.pattern_of(head.path)
        self._trace = RequestTrace(request_id_of(head.headers), pattern)
        self._is_closed = False
        self._is_late = False
        self._later(BODY_SECONDS, self._release)

    @property
    def is_placed(self) -> bool:
        return self._placement is not None

    def take_body(self, piece: bytes) -> Fault | None:
        if self._is_late:
            return self._picker.refused(BODY_TIMEOUT)
        self._size_bytes += len(piece)
        if self._size_bytes > self._picker.gateway.settings.max_body_bytes:
            return self._picker.refused(TOO_LARGE)
        try:
            self._held.count(len(piece))
        except RequestRefused as refused:
            return self._picker.refused(refused.fault)
        self._pieces.append(piece)
        return None

    async def place(self, subset: Iterable[str] | None) -> Fault | None:
        """Fills ``endpoints`` and ``body``. ``subset``: the endpoints to choose from; None: all."""
        if self._is_late:
            return self._picker.refused(BODY_TIMEOUT)
        self._stop_timer()
        picker, gateway, held, trace = self._picker, self._picker.gateway, self._held, self._trace
        held.data = b"".join(self._pieces)
        self._pieces.clear()
        trace.started_s = time.perf_counter()
        try:
            inspect = gateway.inspector.inspect_request
            asked, self.body = await inspect(self._head.path, self._head.headers, held, self._name)
        except RequestRefused as refused:
            return picker.refused(refused.fault)
        self.is_changed = self.body is not held.data
        gateway.metrics.in_flight.inc()
        self._asked = asked.without_prompt()
        trace.request = await gateway.evidence.collect(asked, self.body)
        held.drop_parsed()
        allowed = None if subset is None else picker.names_of(subset)
        try:
            if not picker.has_ready(allowed):
                raise NoUsableReplicaError("no replica is ready")
            self._placement = gateway.placements(trace.request, allowed, asked.model)(frozenset())
        except NoUsableReplicaError:
            trace.status = NO_REPLICA.status
            return NO_REPLICA
        trace.decision = self._placement.decision
        self._began_s = time.perf_counter()
        self.endpoints = picker.endpoints(trace.decision, allowed)
        return None

    def header_changes(self) -> tuple[Headers, tuple[bytes, ...]]:
        """What the engine must see: the destination, our request id and key, without what clients must not say."""
        key, removed = self._picker.header_changes(self._head)
        destination = (DESTINATION, ",".join(self.endpoints).encode())
        return (destination, (REQUEST_ID, self._trace.request_id.encode()), *key), removed

    def drop_body(self) -> None:
        """The data plane has the body."""
        self.body = b""
        self._held.drop()

    def answer_began(self, status: int, *, is_events: bool, sees_body: bool, served: str | None = None) -> None:
        """``sees_body``: pieces will follow. Otherwise the first token of a stream is assumed when it is predicted:
        engines send the headers of a stream before they compute."""
        self._serve_by(served)
        placement, trace = self._placement, self._trace
        if placement is None:
            return
        trace.status, trace.first_byte_s = status, time.perf_counter()
        trace.note_attempt(placement.decision.replica, self._began_s, status=status, fault=None)
        if status in FAULTY_STATUS:
            placement.end("failed")
        elif status >= 500:
            placement.end("unknown")
        elif sees_body:
            self._scan = ReplyScan(is_event_stream=is_events)
        elif is_events:
            self._later(placement.predicted_first_byte_s, lambda: placement.first_byte(status))
        else:
            placement.first_byte(status)

    def answer_piece(self, data: bytes) -> None:
        if self._scan is None or self._placement is None or not data:
            return
        now_s = time.perf_counter()
        if not self._trace.answer_bytes:
            self._placement.first_byte(self._trace.status or 200)
        self._scan.feed(data, now_s)
        self._trace.answer_bytes += len(data)

    def close(self, *, is_complete: bool) -> None:
        """``is_complete``: the answer ended by itself. Otherwise the client left, or the data plane gave up."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_timer()
        self._pieces.clear()
        self.drop_body()
        trace = self._trace
        if self._placement is not None:
            trace.outcome = "complete" if is_complete else "client_left"
            trace.facts = None if self._scan is None else self._scan.facts()
            if is_complete:
                self._placement.first_byte(trace.status or 200)
            self._placement.end("answered" if is_complete else "unknown", trace.facts)
        if self._tenant is not None:
            self._tenant.end()
        if self._asked is not None:
            self._picker.gateway.metrics.in_flight.dec()
            self._picker.gateway.finished(self._asked, trace)

    def _serve_by(self, served: str | None) -> None:
        """The data plane retried elsewhere: the load moves, and the first choice is checked by a request of our own."""
        placement, request = self._placement, self._trace.request
        if placement is None or request is None or served is None or served == self.endpoints[0]:
            return
        names = self._picker.names_of((served,))
        if not names or placement.decision.replica in names:
            return
        self._trace.note_attempt(placement.decision.replica, self._began_s, status=None, fault="retried")
        placement.end("unknown")
        placement.suspect()
        try:
            self._placement = self._picker.gateway.placements(request, names)(frozenset())
            self._trace.decision = self._placement.decision
        except NoUsableReplicaError:  # it left the fleet meanwhile
            self._placement = None

    def _release(self) -> None:
        """A body that does not arrive in time must not keep memory from others."""
        self._is_late = True
        self._pieces.clear()
        self._held.drop()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, act)


def endpoint_of(replica: Replica) -> str:
    return _endpoint(replica.endpoint.origin)


@lru_cache(maxsize=1024)
def _endpoint(origin: str) -> str:
    """``ip:port``, as the protocol writes it."""
    parts = urlsplit(origin)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
