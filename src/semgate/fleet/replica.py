"""One replica: its endpoint, its slot in the indexes, load, health and breaker, and the view that placement reads."""

from __future__ import annotations

import time
from collections.abc import Callable

from semgate.fleet.breaker import Breaker, BreakerOptions
from semgate.fleet.endpoint import Endpoint
from semgate.fleet.engine_load import EngineLoad
from semgate.fleet.load import AttemptOutcome, Load, Ticket
from semgate.placement.view import ReplicaState, ReplicaView


class Replica:
    """Healthy until a health check fails: a router that has just started must not refuse everything."""

    def __init__(
        self,
        endpoint: Endpoint,
        slot: int,
        breaker: BreakerOptions | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self.slot = slot
        self.breaker = Breaker(breaker)
        self._clock_s = clock_s
        self._load = Load(self._touch, clock_s)
        self._healthy = True
        self._draining = False
        self._view: ReplicaView | None = None

    @property
    def name(self) -> str:
        return self.endpoint.name

    @property
    def in_flight(self) -> int:
        return self._load.in_flight

    @property
    def queued_prefill_tokens(self) -> int:
        return self._load.queued_prefill_tokens

    @property
    def healthy(self) -> bool:
        return self._healthy

    @healthy.setter
    def healthy(self, healthy: bool) -> None:
        self._healthy = healthy
        self._touch()

    @property
    def draining(self) -> bool:
        """Set by the operator, or because discovery reports the replica as terminating."""
        return self._draining or self.endpoint.terminating

    @draining.setter
    def draining(self, draining: bool) -> None:
        self._draining = draining
        self._touch()

    @property
    def engine_load(self) -> EngineLoad | None:
        """As the engine last reported it; None if it does not report."""
        return self._load.reported

    def report_load(self, reported: EngineLoad | None) -> None:
        """What the engine reports, beside what this router has sent by now."""
        self._load.report(reported)

    @property
    def foreign_requests(self) -> int:
        """Requests on the engine that this router did not send, as far as the engine reports them."""
        return self._load.foreign_requests

    def update(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._touch()

    def begin(self, prefill_tokens: int) -> Ticket:
        """Count an attempt; ``prefill_tokens`` are those the replica is expected to compute (prompt minus cached)."""
        began_s = self._clock_s()
        is_trial = self.breaker.began(began_s)
        return Ticket(
            self._load,
            prefill_tokens,
            lambda outcome: self._ended(outcome, began_s, is_trial=is_trial),
            lambda: self._answer_began(began_s),
        )

    def fault(self) -> None:
        """Records a fault that was detected after the attempt ended."""
        self.breaker.failed(self._clock_s())
        self._touch()

    def state(self) -> ReplicaState:
        if self.draining:
            return "draining"
        breaker = self.breaker.state(self._clock_s())
        if breaker == "open":
            return "open"
        if not self._healthy or self.endpoint.ready is False:
            return "unhealthy"  # known to be down: no trial request is sent
        return "half_open" if breaker == "half_open" else "ready"

    def view(self) -> ReplicaView:
        """Cached until something changes; not while the breaker is open or half-open, as these depend on the clock."""
        view = self._view
        if view is None:
            state = self.state()
            trial = state == "half_open" and self.breaker.trial_due(self._clock_s())
            load = self._load
            view = ReplicaView(
                self.name,
                self.slot,
                state,
                load.in_flight + load.foreign_requests,
                load.queued_prefill_tokens + load.foreign_prefill_tokens,
                trial_due=trial,
                head_prefill_tokens=load.head_prefill_tokens,
                head_since_s=load.head_since_s,
            )
            if self.breaker.state(self._clock_s()) == "closed":
                self._view = view
        return view

    def _answer_began(self, began_s: float) -> None:
        """A trial passes when the answer begins, since its end may be minutes away."""
        now_s = self._clock_s()
        if self.breaker.state(now_s) != "closed":
            self.breaker.succeeded(now_s, began_s)
            self._touch()

    def _ended(self, outcome: AttemptOutcome, began_s: float, *, is_trial: bool) -> None:
        if outcome == "ok":
            self.breaker.succeeded(self._clock_s(), began_s)
        elif outcome == "fault":
            self.breaker.failed(self._clock_s())
        elif is_trial:
            self.breaker.abandoned()
        self._touch()

    def _touch(self) -> None:
        self._view = None
