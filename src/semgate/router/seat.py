"""A seat: one request's place on one replica, taken by a decision and given back exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, Protocol

from semgate.fleet import Replica
from semgate.fleet.load import Outcome
from semgate.http.event_stream import ReplyFacts
from semgate.placement.decision import Decision, NoUsableReplicaError
from semgate.placement.placer import Placer
from semgate.placement.view import PlacementRequest
from semgate.router.roster import Roster

# answered: the replica did its work; failed: its breaker must know; gone: nobody listens there any more, so its cache
# is lost too; left: nothing is to be learnt about the replica (the client went, no connection was free, the request
# itself may be at fault).
Ending = Literal["answered", "failed", "gone", "left"]
_OUTCOMES: Final[dict[Ending, Outcome]] = {"answered": "ok", "failed": "fault", "gone": "fault", "left": "cancelled"}


class Seat(Protocol):
    @property
    def decision(self) -> Decision: ...

    @property
    def origin(self) -> str: ...

    def first_byte(self, status: int) -> None:
        """The prefill is over, or the replica refused."""

    def blame(self) -> None:
        """After the end: another replica answered what this one could not, so that the request was not at fault."""

    def end(self, ending: Ending, facts: ReplyFacts | None = None) -> None:
        """The request is no longer there; later calls do nothing."""


# Names of replicas that have failed this request -> a seat elsewhere; NoUsableReplicaError where there is none.
TakeSeat = Callable[[frozenset[str]], Seat]


class Believer(Protocol):
    """Hears of requests by the fleet's slot, to believe that a replica holds them."""

    def sent(self, slot: int, request: PlacementRequest) -> None: ...

    def answered(self, slot: int, request: PlacementRequest) -> None: ...


class FleetSeat:
    def __init__(
        self,
        decision: Decision,
        replica: Replica,
        request: PlacementRequest,
        placer: Placer,
        roster: Roster,
        believer: Believer,
    ) -> None:
        spared_tokens = max(decision.expected_tokens, decision.exact_blocks * request.block_tokens)
        self.decision = decision
        self.origin = replica.endpoint.origin
        self._replica = replica
        self._request = request
        self._placer = placer
        self._roster = roster
        self._believer = believer
        self._ticket = replica.begin(max(request.prompt_tokens - spared_tokens, 1))
        self._began_s = time.perf_counter()
        self._is_over = False

    def first_byte(self, status: int) -> None:
        if self._is_over:
            return
        self._ticket.first_token()
        if self._roster.heard_from(self._replica) and status < 400:
            self._believer.answered(self._replica.slot, self._request)

    def blame(self) -> None:
        self._replica.fault()

    def end(self, ending: Ending, facts: ReplyFacts | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._ticket.end(_OUTCOMES[ending])
        if ending == "gone":
            self._roster.cache_lost(self._replica)
        elif ending == "answered" and facts is not None and facts.first_token_s is not None:
            prompt_tokens = facts.prompt_tokens or self._request.prompt_tokens
            ttft_ms = (facts.first_token_s - self._began_s) * 1e3
            self._placer.observe(self._ticket.observed(prompt_tokens, facts.cached_tokens, ttft_ms))


def seats_for(request: PlacementRequest, placer: Placer, roster: Roster, believer: Believer) -> TakeSeat:
    def take(tried: frozenset[str]) -> Seat:
        asked = replace(request, tried=tried) if tried else request
        decision = placer.decide(asked, roster.fleet.views())
        replica = roster.fleet.find(decision.replica)
        if replica is None:
            raise NoUsableReplicaError(f"the placement named '{decision.replica}', which is not in the fleet")
        believer.sent(replica.slot, request)
        return FleetSeat(decision, replica, request, placer, roster, believer)

    return take
