"""The load of a replica: requests in flight and prefill tokens not yet computed, of this router and of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from semgate.fleet.engine_load import EngineLoad
from semgate.placement.view import Observed

AttemptOutcome = Literal["ok", "fault", "cancelled"]


class Load:
    """Requests in flight; those without a first token are kept in order of arrival, about 200 bytes each.

    ``changed`` is called after each change, so that views are rebuilt only when needed.
    """

    def __init__(self, changed: Callable[[], None], clock_s: Callable[[], float]) -> None:
        self._changed = changed
        self._clock_s = clock_s
        self._waiting: dict[Ticket, int] = {}
        self.reported: EngineLoad | None = None
        self.foreign_requests = 0
        self.foreign_prefill_tokens = 0
        self.in_flight = 0
        self.queued_prefill_tokens = 0
        self.head_since_s = 0.0

    @property
    def head_prefill_tokens(self) -> int:
        """Prefill of the oldest request without a first token, which a first-in-first-out engine is computing now."""
        return next(iter(self._waiting.values()), 0)

    def report(self, reported: EngineLoad | None) -> None:
        """The engine's own count. What exceeds this router's requests was sent by others: a second router, a batch
        job. A request of ours that the engine has not counted yet only makes the excess smaller."""
        before = self.foreign_requests, self.foreign_prefill_tokens
        self.reported = reported
        if reported is None:
            self.foreign_requests = self.foreign_prefill_tokens = 0
        else:
            self.foreign_requests = max(reported.running + reported.waiting - self.in_flight, 0)
            waiting = min(max(reported.waiting - len(self._waiting), 0), self.foreign_requests)
            self.foreign_prefill_tokens = round(waiting * reported.prefill_tokens)
        if before != (self.foreign_requests, self.foreign_prefill_tokens):
            self._changed()

    def head_age_ms(self) -> float:
        return (self._clock_s() - self.head_since_s) * 1e3

    def join(self, ticket: Ticket, prefill_tokens: int) -> None:
        if not self._waiting:
            self.head_since_s = self._clock_s()
        self._waiting[ticket] = prefill_tokens
        self.in_flight += 1
        self.queued_prefill_tokens += prefill_tokens
        self._changed()

    def computed(self, ticket: Ticket) -> None:
        if ticket not in self._waiting:
            return
        if next(iter(self._waiting)) is ticket:
            self.head_since_s = self._clock_s()
        self.queued_prefill_tokens -= self._waiting.pop(ticket)
        self._changed()

    def leave(self, ticket: Ticket) -> None:
        self.computed(ticket)
        self.in_flight -= 1
        self._changed()


class Ticket:
    """One attempt on one replica. ``first_token`` and ``end`` may be called in any order and more than once: each
    unit of load is released exactly once."""

    __slots__ = ("_ended", "_head_age_ms", "_head_tokens", "_load", "_on_end", "_on_first", "_tokens_ahead")

    def __init__(
        self,
        load: Load,
        prefill_tokens: int,
        on_end: Callable[[AttemptOutcome], None],
        on_first: Callable[[], None] | None = None,
    ) -> None:
        self._tokens_ahead = load.queued_prefill_tokens + load.foreign_prefill_tokens
        self._head_tokens = load.head_prefill_tokens
        self._head_age_ms = load.head_age_ms() if self._head_tokens else 0.0
        self._load = load
        self._on_end = on_end
        self._on_first = on_first
        self._ended = False
        load.join(self, max(prefill_tokens, 0))

    @property
    def tokens_ahead(self) -> int:
        """Prefill that was queued when the attempt started."""
        return self._tokens_ahead

    def first_token(self) -> None:
        self._load.computed(self)
        if self._on_first is not None and not self._ended:
            self._on_first()
            self._on_first = None

    def observed(self, prompt_tokens: int, cached_tokens: int | None, ttft_ms: float) -> Observed:
        """What the placer learns from this attempt and the usage the engine reported."""
        return Observed(
            prompt_tokens,
            self._tokens_ahead,
            cached_tokens,
            ttft_ms,
            head_tokens=self._head_tokens,
            head_age_ms=self._head_age_ms,
        )

    def end(self, outcome: AttemptOutcome) -> None:
        """``fault`` counts against the replica, ``cancelled`` (the client left) does not count."""
        if self._ended:
            return
        self._ended = True
        self._load.leave(self)
        self._on_end(outcome)
