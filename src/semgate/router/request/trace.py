"""What happened to one request so far: filled in while it is forwarded, turned into a decision record at its end."""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from semgate.http.reply_scan import ReplyFacts
from semgate.http.request_body import Asked
from semgate.placement.decision import Decision
from semgate.placement.view import PlacementRequest
from semgate.router.state.decisions import MAX_SCORES, Attempt, DecisionRecord

RequestOutcome = Literal["complete", "cut", "client_left", "refused"]


@dataclass(slots=True)
class RequestTrace:
    """Times are seconds of one monotonic clock; ``started_s`` is when the complete request had been received.
    ``path`` is the pattern that admitted it, because the path itself is the client's text."""

    request_id: str
    path: str
    _: KW_ONLY
    started_s: float = field(default_factory=time.perf_counter)
    request: PlacementRequest | None = None
    decision: Decision | None = None
    attempts: list[Attempt] = field(default_factory=list)
    outcome: RequestOutcome = "refused"
    status: int | None = None
    first_byte_s: float | None = None
    facts: ReplyFacts | None = None
    answer_bytes: int = 0

    def note_attempt(self, replica: str, began_s: float, *, status: int | None, fault: str | None) -> None:
        self.attempts.append(Attempt(replica, status, fault, round((time.perf_counter() - began_s) * 1e3, 3)))

    def record(self, asked: Asked, *, tenant_digest: str, session_digest: str | None) -> DecisionRecord:
        decision, facts = self.decision, self.facts
        keys = self.request.keys.size if self.request is not None else 0
        collect_us = 0.0 if self.request is None else self.request.collect_us
        return DecisionRecord(
            request_id=self.request_id,
            at_unix_ms=int(time.time() * 1e3),
            path=self.path,
            tenant=tenant_digest,
            session=session_digest,
            stream=asked.stream,
            replica=None if decision is None else decision.replica,
            route="none" if decision is None else decision.path,
            policy="none" if decision is None else decision.policy,
            reason="no replica could take the request" if decision is None else decision.reason,
            exact_blocks=0 if decision is None else decision.exact_blocks,
            prompt_blocks=int(keys) if keys else None,
            donor_tokens=0 if decision is None else decision.donor_tokens,
            similarity=None if decision is None else decision.similarity,
            scores_ms=() if decision is None else decision.scores_ms[:MAX_SCORES],
            decide_us=round(collect_us + (0.0 if decision is None else decision.decide_us), 1),
            attempts=tuple(self.attempts),
            outcome=self.outcome,
            status=self.status,
            first_byte_ms=self._since(self.first_byte_s),
            ttft_ms=None if facts is None else self._since(facts.first_token_s),
            total_ms=self._since(time.perf_counter()) or 0.0,
            answer_bytes=self.answer_bytes,
            prompt_tokens=None if facts is None else facts.prompt_tokens,
            cached_tokens=None if facts is None else facts.cached_tokens,
        )

    def _since(self, at_s: float | None) -> float | None:
        return None if at_s is None else round((at_s - self.started_s) * 1e3, 3)
