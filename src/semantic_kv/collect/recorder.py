"""Requests and how they were served in, trace records out: in order of sending, without text unless requested."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, replace
from typing import IO

from semantic_kv.collect.request import OK, PromptRequest, Served
from sembase.tokenizer import Tokenizer, open_tokenizer
from sembase.trace.anonymise import anonymise
from sembase.trace.from_prompt import record_from_messages
from sembase.trace.record import TraceRecord, record_as_json


@dataclass(slots=True)
class Ticket:
    """An open request; it keeps its prompt until the answer is recorded."""

    request: PromptRequest
    timestamp_ms: float
    record: TraceRecord | None = None


class TraceRecorder:
    """Writes a record when it and all requests sent before it have finished, so the file is sorted by time.

    Holds the open requests and the finished ones after an open one. With ``key`` None, texts and names are written;
    otherwise they become digests under the key.
    """

    def __init__(self, stream: IO[str], key: bytes | None, *, tokenizer: Tokenizer | None = None) -> None:
        self._stream = stream
        self._key = key
        self._tokenizer = tokenizer or open_tokenizer(None)
        self._open: deque[Ticket] = deque()
        self.written = 0

    def begin(self, request: PromptRequest, timestamp_ms: float) -> Ticket:
        """Call in order of sending."""
        ticket = Ticket(request, timestamp_ms)
        self._open.append(ticket)
        return ticket

    def finish(self, ticket: Ticket, served: Served, **metadata: object) -> TraceRecord:
        record = observed_record(ticket.request, ticket.timestamp_ms, served, self._tokenizer, metadata)
        ticket.record = record if self._key is None else without_text(record, self._key)
        while self._open and (done := self._open[0].record) is not None:
            self._open.popleft()
            self._stream.write(json.dumps(record_as_json(done)) + "\n")
            self.written += 1
        return ticket.record


def without_text(record: TraceRecord, key: bytes) -> TraceRecord:
    """Digests for texts and names. Timestamps and metadata are the collector's own and not personal, so they stay."""
    (bare,) = anonymise([record], key)
    return replace(bare, timestamp_ms=record.timestamp_ms, metadata=record.metadata)


def observed_record(
    request: PromptRequest,
    timestamp_ms: float,
    served: Served,
    tokenizer: Tokenizer,
    metadata: dict[str, object] | None = None,
) -> TraceRecord:
    """A failed request keeps its blocks and the reason, but no observed times."""
    record = record_from_messages(
        request.messages,
        request_id=request.request_id,
        timestamp_ms=timestamp_ms,
        session_id=request.session_id,
        tenant_id=request.tenant_id,
        tokenizer=tokenizer,
    )
    is_ok = served.status == OK
    is_counted = served.prompt_tokens is not None and served.cached_tokens is not None
    about = {"status": served.status if is_ok else "failed", "kind": request.kind, **(metadata or {})}
    if served.prompt_tokens is not None:
        about["prompt_tokens"] = served.prompt_tokens
    return replace(
        record,
        model_name=served.model_name,
        output_tokens=served.output_tokens if is_ok else None,
        observed_ttft_ms=served.ttft_ms if is_ok else None,
        observed_total_latency_ms=served.total_ms if is_ok else None,
        observed_prefix_hit_tokens=served.cached_tokens if is_ok else None,
        observed_prefill_tokens=max(0, (served.prompt_tokens or 0) - (served.cached_tokens or 0))
        if is_ok and is_counted
        else None,
        metadata=about,
    )
