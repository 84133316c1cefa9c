"""Requests of a load as records: when each was due and sent, and how it ended. One JSON line per record."""

from __future__ import annotations

import itertools
import json
from array import array
from collections import deque
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from sembench.http.client import LiveReply
from sembench.http.reply import CANCELLED, OK

_RECENT: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """Times in ms. ``scheduled_s`` and ``sent_s`` count from the start of the load; a closed loop has no schedule.

    ``lateness_ms`` is the client's own delay; latencies from the schedule include it.
    """

    request_id: str
    status: str
    detail: str
    scheduled_s: float | None
    sent_s: float
    lateness_ms: float | None
    wire_ms: float | None
    ttft_ms: float | None
    tpot_ms: float | None
    total_ms: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    chunks: int
    chunk_ms: tuple[float, ...]

    @property
    def ok(self) -> bool:
        return self.status == OK

    @property
    def tokens(self) -> int:
        """The server's count, otherwise one per chunk."""
        return self.chunks if self.completion_tokens is None else self.completion_tokens

    def from_schedule(self, ms: float | None) -> float | None:
        return None if ms is None or self.lateness_ms is None else ms + self.lateness_ms

    def to_json(self) -> dict[str, Any]:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        shown = {name: round(value, 3) if isinstance(value, float) else value for name, value in values}
        return {**shown, "chunk_ms": [round(ms, 3) for ms in self.chunk_ms]}


def record_of(reply: LiveReply, *, start: float, scheduled_s: float | None, sent_at: float) -> LoadRecord:
    sent_s = (reply.sent_at if reply.sent_at is not None else sent_at) - start
    return LoadRecord(
        request_id=reply.request_id,
        status=reply.status,
        detail=reply.detail,
        scheduled_s=scheduled_s,
        sent_s=sent_s,
        lateness_ms=None if scheduled_s is None else 1000.0 * (sent_s - scheduled_s),
        wire_ms=reply.wire_ms,
        ttft_ms=reply.ttft_ms,
        tpot_ms=_tpot_ms(reply),
        total_ms=reply.total_ms,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cached_tokens=reply.cached_tokens,
        chunks=len(reply.chunk_ms),
        chunk_ms=reply.chunk_ms,
    )


def cancelled_record(request_id: str, *, start: float, scheduled_s: float | None, sent_at: float) -> LoadRecord:
    reply = LiveReply(request_id, CANCELLED, "stopped before the reply was complete", sent_at=sent_at)
    return record_of(reply, start=start, scheduled_s=scheduled_s, sent_at=sent_at)


def _tpot_ms(reply: LiveReply) -> float | None:
    """Time per token after the first; None for a reply of one token."""
    tokens = reply.completion_tokens if reply.completion_tokens is not None else len(reply.chunk_ms)
    if reply.status != OK or tokens < 2 or len(reply.chunk_ms) < 2:
        return None
    return (reply.chunk_ms[-1] - reply.chunk_ms[0]) / (tokens - 1)


def requests_path(output: Path) -> Path:
    return output.with_name(output.name + ".requests.jsonl")


class Collector:
    """Writes and flushes each record at once, and keeps it without its chunk times.

    ``gaps_ms`` are the times between token-bearing chunks of all successful replies.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.records: list[LoadRecord] = []
        self.gaps_ms = array("d")
        self.recent: deque[LoadRecord] = deque(maxlen=_RECENT)
        self.failed = 0
        self._stream = path.open("w", encoding="utf-8", newline="\n")

    def keep(self, record: LoadRecord) -> None:
        self._stream.write(json.dumps(record.to_json(), ensure_ascii=False, allow_nan=False) + "\n")
        self._stream.flush()
        if record.ok:
            chunks = record.chunk_ms
            self.gaps_ms.extend([after - before for before, after in itertools.pairwise(chunks)])
        else:
            self.failed += 1
        slim = replace(record, chunk_ms=())
        self.records.append(slim)
        self.recent.append(slim)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stream.close()
