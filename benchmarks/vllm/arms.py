"""One item through all arms of one server: cold, exact cache, ours; then the same prompts scored on two texts."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.vllm.client import Ask, Client, Position, Reply
from benchmarks.vllm.happenings import RequestResult
from benchmarks.vllm.quality import Distance, agreement_length, distance
from benchmarks.vllm.servers import Subject
from benchmarks.vllm.workload import Item

GREEDY_TOKENS = 16
DONOR_TIMEOUT_S = 20.0


@dataclass(slots=True)
class Row:
    """All measurements of one item. Distances are to the cold reading; ``real`` (the
    reference text) and ``greedy`` (the cold answer) name the text scored."""

    size: str
    case: str
    number: int
    prompt_tokens: int
    donors_findable: bool = True
    donors_wait_ms: float = 0.0
    cold_ms: float | None = None
    exact_ms: float | None = None
    ours_ms: float | None = None
    cold_cached_tokens: int = 0
    exact_cached_tokens: int = 0
    result: RequestResult | None = None
    scored_result: RequestResult | None = None
    cold_answer_tokens: int = 0
    exact_agreement: int | None = None
    ours_agreement: int | None = None
    ours_real: Distance | None = None
    ours_greedy: Distance | None = None
    exact_real: Distance | None = None
    cold_real: Distance | None = None
    load_average: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def is_contaminated(self) -> bool:
        """The cold arm was not cold: nothing can be compared with it."""
        return self.cold_cached_tokens > 0

    @property
    def is_served(self) -> bool:
        return self.result is not None and self.result.was_reused and not self.is_contaminated

    def as_record(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Row:
        """A row of an earlier run, read back from its file."""
        fields = dict(record)
        for name in ("result", "scored_result"):
            fields[name] = None if fields[name] is None else RequestResult(**fields[name])
        for name in ("ours_real", "ours_greedy", "exact_real", "cold_real"):
            fields[name] = None if fields[name] is None else Distance.from_record(fields[name])
        return cls(**fields)


def measure(item: Item, subject: Subject, *, score: bool = True, floor: bool = True) -> Row:
    """``floor`` repeats the cold reading, for the noise of the engine itself."""
    row = Row(item.size, item.case, item.number, len(item.recipient), load_average=os.getloadavg()[0])
    if subject.happenings is not None:
        _offer_donors(item, subject, row)
    cold, exact, ours = _time_arms(item, subject, row)
    row.cold_answer_tokens = len(cold.tokens)
    row.exact_agreement = agreement_length(cold.tokens, exact.tokens)
    if ours is not None:
        row.ours_agreement = agreement_length(cold.tokens, ours.tokens)
    if score:
        _score(item, subject, row, cold.tokens, floor)
    return row


def _offer_donors(item: Item, subject: Subject, row: Row) -> None:
    """Donors are earlier requests and must be findable before the recipient is sent."""
    assert subject.happenings is not None
    started = time.monotonic()
    for donor in item.donors:
        reply = subject.client.whole(Ask(donor, 1, _salt(item), reuse=False, capture=True))
        if not subject.happenings.wait_for_donor(reply.request_id, lambda: _poke(subject.client), DONOR_TIMEOUT_S):
            row.donors_findable = False
            row.notes.append(f"donor never findable: {reply.provenance}")
    row.donors_wait_ms = (time.monotonic() - started) * 1e3


def _poke(client: Client) -> None:
    client.whole(Ask(range(50, 58), 1, "poke", reuse=False))


def _time_arms(item: Item, subject: Subject, row: Row) -> tuple[Reply, Reply, Reply | None]:
    """Ours goes first on every other item, so that neither always follows the other."""
    ours = _time_ours(item, subject, row) if item.number % 2 else None
    subject.client.reset_exact_cache()
    cold = subject.client.timed(Ask(item.recipient, GREEDY_TOKENS, _salt(item), reuse=False))
    exact = subject.client.timed(Ask(item.recipient, GREEDY_TOKENS, _salt(item), reuse=False))
    if not item.number % 2:
        ours = _time_ours(item, subject, row)
    row.cold_ms, row.cold_cached_tokens = cold.first_token_ms, cold.cached_tokens
    row.exact_ms, row.exact_cached_tokens = exact.first_token_ms, exact.cached_tokens
    if not exact.cached_tokens:
        row.notes.append("the exact arm had no cache hit")
    return cold, exact, ours


def _time_ours(item: Item, subject: Subject, row: Row) -> Reply | None:
    if subject.happenings is None:
        return None
    subject.client.reset_exact_cache()
    ours = subject.client.timed(Ask(item.recipient, GREEDY_TOKENS, _salt(item)))
    row.ours_ms = ours.first_token_ms
    row.result = subject.happenings.result(ours.request_id)
    if row.result.was_reused and ours.cached_tokens != row.result.reused_tokens:
        row.notes.append(f"usage says {ours.cached_tokens} cached tokens, the event {row.result.reused_tokens} reused")
    return ours


def _score(item: Item, subject: Subject, row: Row, answer: Sequence[int], floor: bool) -> None:
    client, salt = subject.client, _salt(item)

    def read(text: Sequence[int], *, reuse: bool = False, fresh: bool = True) -> Reply:
        if fresh:
            client.reset_exact_cache()
        reply = client.whole(Ask(item.recipient, len(text), salt, reuse=reuse, forced=text), scored=True)
        if reply.tokens != tuple(text):
            row.notes.append("the server did not return the forced text")
        return reply

    cold_greedy = read(answer)
    cold_real = read(item.reference)
    row.cold_cached_tokens += cold_greedy.cached_tokens + cold_real.cached_tokens
    row.exact_real = distance(cold_real.positions, read(item.reference, fresh=False).positions)
    if floor:
        row.cold_real = distance(cold_real.positions, read(item.reference).positions)
    if subject.happenings is not None:
        ours_real, ours_greedy = read(item.reference, reuse=True), read(answer, reuse=True)
        row.scored_result = subject.happenings.result(ours_real.request_id)
        row.ours_real = _when_reused(row.scored_result, cold_real.positions, ours_real.positions)
        row.ours_greedy = _when_reused(
            subject.happenings.result(ours_greedy.request_id), cold_greedy.positions, ours_greedy.positions
        )


def _when_reused(result: RequestResult, cold: Sequence[Position], ours: Sequence[Position]) -> Distance | None:
    """Only an answer with reuse measures the quality of reuse."""
    return distance(cold, ours) if result.was_reused else None


def _salt(item: Item) -> str:
    return f"{item.size}-{item.case}-{item.number}"
