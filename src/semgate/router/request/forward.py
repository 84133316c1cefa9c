"""Sends one request to a replica, and to another one if the first fails before the first byte of its answer.

In: a job (the request as received, a way to place it, the client's connection); out: bytes to the client and a filled
trace. Called by the app for each request. ``http/repeatable.py`` says which paths may be sent twice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from sembase.http.client import HttpClient, HttpFault, is_repeatable
from semgate.http.faults import Fault, Send, fault_of, send_fault
from semgate.placement.decision import NoUsableReplicaError
from semgate.router.request.answer import Answer, Client, Inbound, open_answer, pass_on, routing_headers
from semgate.router.request.placement import Ending, Placement, PlaceRequest
from semgate.router.request.trace import RequestTrace

REPEATABLE_STATUS: Final = frozenset({500, 502, 503, 504})
# The replica, or a proxy in front of it, reports that it cannot answer. Any other status is an answer.
FAULTY_STATUS: Final = frozenset({502, 503})
# The request itself may have caused it. If another replica answers, the router checks this one with its own request.
SUSPECT_STATUS: Final = frozenset({500, 504})
BURST: Final = 100.0
NO_REPLICA: Final = Fault(503, "server_error", "no_replica", "No replica can take the request now; retry later.", 1)


@dataclass(frozen=True, slots=True)
class ForwardJob:
    inbound: Inbound
    place: PlaceRequest
    client: Client
    trace: RequestTrace
    streams: bool = True
    suspects: list[Placement] = field(default_factory=list)  # attempts that ended in a suspect status


class Forwarder:
    """Cancelling ``run`` (the client left, or the shutdown's time limit) closes the connection to the replica."""

    def __init__(
        self, upstream: HttpClient, *, max_attempts: int, retry_fraction: float, min_first_byte_s: float = 0.0
    ) -> None:
        self._upstream = upstream
        self._max_attempts = max_attempts
        self._min_first_byte_s = min_first_byte_s
        self._budget = RetryBudget(retry_fraction)

    async def run(self, job: ForwardJob) -> None:
        self._budget.earn()
        try:
            placement: Placement | None = job.place(frozenset())
        except NoUsableReplicaError:
            await _refuse(job.client.send, NO_REPLICA, job.trace)
            return
        while placement is not None:
            placement = await self._attempt(job, placement)

    async def _attempt(self, job: ForwardJob, placement: Placement) -> Placement | None:
        """The placement to try next, or None when the client has its answer."""
        trace = job.trace
        trace.decision = placement.decision
        began_s = time.perf_counter()
        try:
            answer = await open_answer(self._upstream, placement.origin, job.inbound)
            trace.note_attempt(placement.decision.replica, began_s, status=answer.reply.status, fault=None)
            return await self._answer_or_next(job, placement, answer)
        except HttpFault as fault:
            trace.note_attempt(placement.decision.replica, began_s, status=None, fault=fault.kind)
            placement.end(_ending(fault))
            # An answer that is not a stream has no first byte before its end: the next replica would be as slow.
            is_slow = fault.kind == "timeout" and not job.streams
            following = None if is_slow else self._next(job, sent=fault.sent, costs_budget=fault.kind == "timeout")
            if following is None:
                await _refuse(job.client.send, fault_of(fault), trace)
            return following
        finally:
            placement.end("unknown")  # only takes effect for a cancelled request: every other one has ended by now

    async def _answer_or_next(self, job: ForwardJob, placement: Placement, answer: Answer) -> Placement | None:
        status = answer.reply.status
        try:
            if status < 400:
                for each in job.suspects:
                    each.suspect()
            elif status >= 500:
                placement.end("failed" if status in FAULTY_STATUS else "unknown")
                if status in SUSPECT_STATUS:
                    job.suspects.append(placement)
                if status in REPEATABLE_STATUS and (following := self._next(job, sent=True, costs_budget=True)):
                    return following
            job.inbound.body.drop()  # no other replica will need it
            await pass_on(answer, placement, job.client, job.trace, self._min_first_byte_s)
            return None
        finally:
            await answer.reply.abort()

    def _next(self, job: ForwardJob, *, sent: bool, costs_budget: bool) -> Placement | None:
        """``costs_budget``: the request or the load may have caused the fault, so the retry budget pays for another."""
        tried = job.trace.attempts
        inbound = job.inbound
        if len(tried) >= self._max_attempts or (sent and not is_repeatable(inbound.method, inbound.path)):
            return None
        if costs_budget and not self._budget.spend():
            return None
        try:
            return job.place(frozenset(attempt.replica for attempt in tried))
        except NoUsableReplicaError:
            return None


class RetryBudget:
    """A token bucket: each request earns ``fraction`` of a retry, a burst is free. State: one number.

    Pays for retries after errors and timeouts only. A refused or lost connection means that the replica is gone: such
    retries are bounded by ``max_attempts`` and the breaker, and refusing them would lose requests for nothing.
    """

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction
        self._tokens = BURST

    def earn(self) -> None:
        self._tokens = min(BURST, self._tokens + self._fraction)

    def spend(self) -> bool:
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def _ending(fault: HttpFault) -> Ending:
    """Only a refused connection means that the replica is gone. A full connection pool says nothing about it, nor does
    silence, since a client decides how long its request takes: health checks find a replica that hangs. Any other
    failure of the connection may be the request's doing, or that of the clients who fill the accept queue."""
    if fault.kind in ("no_connection", "timeout"):
        return "unknown"
    return "gone" if fault.refused else "suspect"


async def _refuse(send: Send, fault: Fault, trace: RequestTrace) -> None:
    trace.status = fault.status
    await send_fault(send, fault, routing_headers(trace.request_id, trace.decision))
