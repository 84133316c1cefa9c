"""What is kept of one routed request: where it went, why, and how it ended. Only keyed digests, no text and no keys.

In: a placement decision and the outcome of forwarding; out: JSON values for the ring, the log files and `explain`.
About 1 KB as JSON; at most ``MAX_SCORES`` scores. ``DecisionRing`` keeps the latest in memory.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from sembase.errors import ContractError

SCHEMA: Final = "semgate.decision.v1"
MAX_SCORES: Final = 16


@dataclass(frozen=True, slots=True)
class Attempt:
    """One replica tried. ``fault`` is None if it answered, ``status`` is None if it did not."""

    replica: str
    status: int | None
    fault: str | None
    ms: float


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """``outcome``: complete, cut (lost after the first byte), client_left, refused (no replica could answer).

    ``prompt_blocks`` is None without block keys. ``ttft_ms`` is of a stream's first token; ``prompt_tokens`` and
    ``cached_tokens`` are reported by the engine, None if it does not report. ``decide_us``: keys, look-ups and the
    choice, without tokenizing.
    """

    request_id: str
    at_unix_ms: int
    path: str
    tenant: str
    session: str | None
    stream: bool
    replica: str | None
    route: str
    policy: str
    reason: str
    exact_blocks: int
    prompt_blocks: int | None
    donor_tokens: int
    similarity: float | None
    scores_ms: tuple[tuple[str, float], ...]
    decide_us: float
    attempts: tuple[Attempt, ...]
    outcome: str
    status: int | None
    first_byte_ms: float | None
    ttft_ms: float | None
    total_ms: float
    answer_bytes: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    schema: str = SCHEMA

    def as_record(self) -> dict[str, Any]:
        record: dict[str, Any] = msgspec.to_builtins(self, builtin_types=())
        return record

    def as_line(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


def record_from_json(value: Any) -> DecisionRecord:
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise ContractError(f"not a {SCHEMA} record")
    given = dict(value)
    try:
        given["scores_ms"] = tuple((str(name), float(ms)) for name, ms in given["scores_ms"])
        given["attempts"] = tuple(Attempt(**each) for each in given["attempts"])
        return DecisionRecord(**given)
    except (KeyError, TypeError, ValueError) as error:
        raise ContractError(f"invalid {SCHEMA} record: {error}") from None


class DecisionRing:
    """The latest decisions by request id: 1.5 KB each, O(1) per request. A repeated id keeps its latest decision."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[str, DecisionRecord] = OrderedDict()

    def add(self, record: DecisionRecord) -> None:
        if self._capacity == 0:
            return
        self._kept.pop(record.request_id, None)
        self._kept[record.request_id] = record
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)

    def get(self, request_id: str) -> DecisionRecord | None:
        return self._kept.get(request_id)

    def latest(self, count: int) -> list[DecisionRecord]:
        """Newest first."""
        kept = reversed(self._kept.values())
        return [record for record, _ in zip(kept, range(count), strict=False)]

    def __len__(self) -> int:
        return len(self._kept)
