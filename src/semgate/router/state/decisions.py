"""What is kept of one routed request: where it went, why, and how it ended. Only keyed digests, no text and no keys.

In: a placement decision and the outcome of forwarding; out: JSON values for the ring, the log files and `explain`.
About 1 KB as JSON; at most ``MAX_SCORES`` scores. ``DecisionRing`` keeps the
latest in memory, ``DecisionLog`` writes them to files.
"""

from __future__ import annotations

import contextlib
import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from sembase.errors import ConfigurationError, ContractError
from sembase.jsonl import NumberedFiles, QueuedLog

SCHEMA: Final = "semgate.decision.v1"
MAX_SCORES: Final = 16
MAX_FOUND: Final = 10
PREFIX: Final = "decisions"
QUEUE_RECORDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Attempt:
    """One replica tried. ``fault`` is None if it answered, ``status`` is None if it did not."""

    replica: str
    status: int | None
    fault: str | None
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """The latest decisions by request id and tenant: 1.5 KB each, O(1) per request. A tenant that repeats an id keeps
    its latest decision; clients choose ids, so that of another tenant stays."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[tuple[str, str], DecisionRecord] = OrderedDict()

    def add(self, record: DecisionRecord) -> None:
        if self._capacity == 0:
            return
        key = record.request_id, record.tenant
        self._kept.pop(key, None)
        self._kept[key] = record
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)

    def find(self, request_id: str) -> list[DecisionRecord]:
        """Newest first, one per tenant, at most ``MAX_FOUND``."""
        found = (record for record in reversed(self._kept.values()) if record.request_id == request_id)
        return list(islice(found, MAX_FOUND))

    def latest(self, count: int) -> list[DecisionRecord]:
        """Newest first."""
        kept = reversed(self._kept.values())
        return [record for record, _ in zip(kept, range(count), strict=False)]

    def __len__(self) -> int:
        return len(self._kept)


class DecisionLog:
    """Writes ``decisions-*.jsonl`` in a thread of its own, at most ``files`` of ``file_bytes`` each; 0 files: off.
    10,000 queued records take about 15 MB."""

    def __init__(self, folder: Path, *, files: int, file_bytes: int, queue_records: int = QUEUE_RECORDS) -> None:
        self._folder = folder
        self._is_on = files > 0
        numbered = NumberedFiles(folder, PREFIX, max_bytes=file_bytes, max_files=files)
        self._log = QueuedLog("semgate-decisions", numbered, DecisionRecord.as_line, max_items=queue_records)

    @property
    def dropped(self) -> int:
        return self._log.counts.dropped_full

    @property
    def failed(self) -> int:
        return self._log.counts.dropped_error

    def start(self) -> None:
        if not self._is_on:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write decisions to {self._folder}: {error.strerror}; give a writable folder with "
                "--routing-output-dir, or --decision-files 0"
            ) from None
        self._log.start()

    def add(self, record: DecisionRecord) -> None:
        """Never waits; what does not fit into the queue is dropped and counted."""
        if self._is_on:
            self._log.put(record)

    def close(self) -> None:
        """Writes what is queued, then ends the thread."""
        self._log.close()


def find_decisions(folder: Path, request_id: str, limit: int = MAX_FOUND) -> list[DecisionRecord]:
    """Newest first. A torn last line, left by a killed process, is skipped."""
    found: list[DecisionRecord] = []
    for path in sorted(folder.glob(f"{PREFIX}-*.jsonl"), reverse=True):
        found += reversed(list(_matching(path, request_id)))
        if len(found) >= limit:
            break
    return found[:limit]


def _matching(path: Path, request_id: str) -> Iterator[DecisionRecord]:
    needle = json.dumps(request_id).encode()
    with path.open("rb") as stream:
        for line in stream:
            if needle not in line:
                continue
            with contextlib.suppress(ValueError, ContractError):
                record = record_from_json(json.loads(line))
                if record.request_id == request_id:
                    yield record
