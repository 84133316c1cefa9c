"""One request to a replica; to another before the first byte of an answer, never after it.

In: an errand (the request as received, a way to take seats, the client's end); out: bytes to the client and a filled
journey. Called by the app for each request.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from semgate.http.faults import Fault, Send, fault_of, send_fault
from semgate.http.repeatable import is_repeatable
from semgate.http.upstream import Upstream, UpstreamFault
from semgate.placement.decision import NoUsableReplicaError
from semgate.router.answer import Answer, Client, open_answer, pass_on
from semgate.router.inbound import Inbound
from semgate.router.journey import Journey
from semgate.router.response_headers import routing_headers
from semgate.router.retry import REPEATABLE_STATUS, RetryBudget
from semgate.router.seat import Ending, Seat, TakeSeat

# The replica, or what stands before it, says itself that it cannot answer. A 500 may be the request's own doing, and
# any other status is an answer.
FAULTY_STATUS: Final = frozenset({502, 503, 504})
NO_REPLICA: Final = Fault(503, "server_error", "no_replica", "No replica can take the request now; try again.", 1)


@dataclass(frozen=True, slots=True)
class Errand:
    inbound: Inbound
    take: TakeSeat
    client: Client
    journey: Journey
    suspects: list[Seat] = field(default_factory=list)  # of attempts that ended in a 500


class Forwarder:
    """Cancelling ``run`` (the client left, or the shutdown's limit) closes the connection to the replica."""

    def __init__(
        self, upstream: Upstream, *, max_attempts: int, retry_share: float, min_first_byte_s: float = 0.0
    ) -> None:
        self._upstream = upstream
        self._max_attempts = max_attempts
        self._min_first_byte_s = min_first_byte_s
        self._budget = RetryBudget(retry_share)

    async def run(self, errand: Errand) -> None:
        self._budget.earn()
        try:
            seat: Seat | None = errand.take(frozenset())
        except NoUsableReplicaError:
            await _refuse(errand.client.send, NO_REPLICA, errand.journey)
            return
        while seat is not None:
            seat = await self._attempt(errand, seat)

    async def _attempt(self, errand: Errand, seat: Seat) -> Seat | None:
        """The seat to try next, or None when the client has its answer."""
        journey = errand.journey
        journey.decision = seat.decision
        began_s = time.perf_counter()
        try:
            answer = await open_answer(self._upstream, seat.origin, errand.inbound)
            journey.note_attempt(seat.decision.replica, began_s, status=answer.reply.status, fault=None)
            return await self._answer_or_next(errand, seat, answer)
        except UpstreamFault as fault:
            journey.note_attempt(seat.decision.replica, began_s, status=None, fault=fault.kind)
            seat.end(_ending(fault))
            following = self._next(errand, sent=fault.sent, dear=fault.kind == "timeout")
            if following is None:
                await _refuse(errand.client.send, fault_of(fault), journey)
            return following
        finally:
            seat.end("left")  # does nothing where the ending is known: only a cancelled request comes here without

    async def _answer_or_next(self, errand: Errand, seat: Seat, answer: Answer) -> Seat | None:
        status = answer.reply.status
        try:
            if status < 400:
                for each in errand.suspects:
                    each.blame()
            elif status >= 500:
                seat.end("failed" if status in FAULTY_STATUS else "left")
                if status == 500:
                    errand.suspects.append(seat)
                if status in REPEATABLE_STATUS and (following := self._next(errand, sent=True, dear=True)):
                    return following
            errand.inbound.body.drop()  # nobody else will be asked
            await pass_on(answer, seat, errand.client, errand.journey, self._min_first_byte_s)
            return None
        finally:
            await answer.reply.abort()

    def _next(self, errand: Errand, *, sent: bool, dear: bool) -> Seat | None:
        """``dear``: the fault may be the request's or the load's own, so asking again is paid from the budget."""
        tried = errand.journey.attempts
        inbound = errand.inbound
        if len(tried) >= self._max_attempts or (sent and not is_repeatable(inbound.method, inbound.path)):
            return None
        if dear and not self._budget.spend():
            return None
        try:
            return errand.take(frozenset(attempt.replica for attempt in tried))
        except NoUsableReplicaError:
            return None


def _ending(fault: UpstreamFault) -> Ending:
    """Only a refused connection says that nobody is there; one that was never free says nothing of the replica."""
    if fault.kind == "no_connection":
        return "left"
    return "gone" if fault.refused else "failed"


async def _refuse(send: Send, fault: Fault, journey: Journey) -> None:
    journey.status = fault.status
    await send_fault(send, fault, routing_headers(journey.request_id, journey.decision))
