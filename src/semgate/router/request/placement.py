"""A placement: one request on one replica, made by a decision and ended exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, Protocol

from semgate.fleet import Replica
from semgate.fleet.confirmation import Confirmation
from semgate.fleet.load import AttemptOutcome
from semgate.http.reply_scan import ReplyFacts
from semgate.placement.decision import Decision, NoUsableReplicaError
from semgate.placement.placer import Placer
from semgate.placement.view import PlacementRequest
from semgate.router.state.roster import Roster

# answered: the replica did its work. failed: counted by its breaker. gone: nothing listens on its port any more, so
# its cache is lost too. suspect: the connection failed, as the request itself, or many others, may have caused; the
# router sends a request of its own. unknown: the attempt says nothing about the replica (the client left, no connection
# was free, or the request may take longer than a time limit).
Ending = Literal["answered", "failed", "gone", "suspect", "unknown"]
_OUTCOMES: Final[dict[Ending, AttemptOutcome]] = {
    "answered": "ok",
    "failed": "fault",
    "gone": "fault",
    "suspect": "cancelled",
    "unknown": "cancelled",
}


class Placement(Protocol):
    @property
    def decision(self) -> Decision: ...

    @property
    def origin(self) -> str: ...

    @property
    def predicted_first_byte_s(self) -> float:
        """From now on: the prefill that was ahead of the request, and its own."""

    def first_byte(self, status: int) -> None:
        """The prefill is over, or the replica refused."""

    def suspect(self) -> None:
        """Called after the end, when another replica answered the request: this replica may be at fault."""

    def end(self, ending: Ending, facts: ReplyFacts | None = None) -> None:
        """The request is no longer on the replica; later calls do nothing."""


# Names of the replicas that have failed this request -> a placement on another one. Raises NoUsableReplicaError if
# there is none.
PlaceRequest = Callable[[frozenset[str]], Placement]


class PlacementListener(Protocol):
    """Receives what was sent to and answered by which slot of the fleet, to predict which blocks a replica holds."""

    def sent(self, slot: int, request: PlacementRequest) -> None: ...

    def answered(self, slot: int, request: PlacementRequest) -> None: ...

    def reported(self, slot: int, request: PlacementRequest, cached_tokens: int) -> None: ...


class FleetPlacement:
    def __init__(
        self,
        decision: Decision,
        replica: Replica,
        request: PlacementRequest,
        placer: Placer,
        roster: Roster,
        listener: PlacementListener,
        confirmation: Confirmation,
    ) -> None:
        reused_tokens = max(decision.expected_tokens, decision.exact_blocks * request.block_tokens)
        self.decision = decision
        self.origin = replica.endpoint.origin
        self._replica = replica
        self._request = request
        self._placer = placer
        self._roster = roster
        self._listener = listener
        self._confirmation = confirmation
        self._prefill_tokens = max(request.prompt_tokens - reused_tokens, 1)
        self._ticket = replica.begin(self._prefill_tokens)
        self._began_s = time.perf_counter()
        self._is_over = False

    @property
    def predicted_first_byte_s(self) -> float:
        price, tokens = self._placer.price, self._ticket.tokens_ahead + self._prefill_tokens
        return (price.base_ms + price.ms_per_token * tokens) / 1e3

    def first_byte(self, status: int) -> None:
        if self._is_over:
            return
        self._ticket.first_token()
        if self._roster.note_answer(self._replica) and status < 400:
            self._listener.answered(self._replica.slot, self._request)

    def suspect(self) -> None:
        self._confirmation.suspect(self._replica)

    def end(self, ending: Ending, facts: ReplyFacts | None = None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._ticket.end(_OUTCOMES[ending])
        if ending == "answered" and facts is not None and facts.cached_tokens is not None:
            self._listener.reported(self._replica.slot, self._request, facts.cached_tokens)
        if ending == "gone":
            self._roster.cache_lost(self._replica)
        elif ending == "suspect":
            self.suspect()
        elif ending == "answered" and facts is not None and facts.first_token_s is not None:
            prompt_tokens = facts.prompt_tokens or self._request.prompt_tokens
            ttft_ms = (facts.first_token_s - self._began_s) * 1e3
            self._placer.observe(self._ticket.observed(prompt_tokens, facts.cached_tokens, ttft_ms))


def placements_for(
    request: PlacementRequest,
    placer: Placer,
    roster: Roster,
    listener: PlacementListener,
    confirmation: Confirmation,
    allowed: frozenset[str] | None = None,
) -> PlaceRequest:
    def place(tried: frozenset[str]) -> Placement:
        untried = replace(request, tried=tried) if tried else request
        views = roster.fleet.views()
        if allowed is not None:
            views = [each for each in views if each.name in allowed]
        decision = placer.decide(untried, views)
        replica = roster.fleet.find(decision.replica)
        if replica is None:
            raise NoUsableReplicaError(f"the policy chose '{decision.replica}', which is not in the fleet")
        listener.sent(replica.slot, request)
        return FleetPlacement(decision, replica, request, placer, roster, listener, confirmation)

    return place
