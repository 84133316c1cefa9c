"""Requests and how they were served -> trace records, in order of sending, without text unless it is asked for."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, replace
from typing import IO

from semantic_kv.collect.request import OK, PromptRequest, Served
from sembase.segment import record_from_messages
from sembase.tokenizer import Tokenizer, open_tokenizer
from sembase.trace.anonymise import anonymise
from sembase.trace.record import TraceRecord, record_as_json


@dataclass(slots=True)
class Ticket:
    """An open request; it holds its prompt until the answer is recorded."""

    request: PromptRequest
    timestamp_ms: float
    record: TraceRecord | None = None


class TraceRecorder:
    """Writes a record once it and all that were sent before it are finished, so the file is sorted by time.

    Holds the open requests and those finished behind an open one. ``key`` None keeps texts and names as they are; else
    they become digests under it.
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
    """Digests for texts and names; the clock and the metadata are our own and tell nothing about anybody."""
    (bare,) = anonymise([record], key)
    return replace(bare, timestamp_ms=record.timestamp_ms, metadata=record.metadata)


def observed_record(
    request: PromptRequest,
    timestamp_ms: float,
    served: Served,
    tokenizer: Tokenizer,
    metadata: dict[str, object] | None = None,
) -> TraceRecord:
    """Failed requests keep their blocks and their reason but no observed time."""
    record = record_from_messages(
        request.messages,
        request_id=request.request_id,
        timestamp_ms=timestamp_ms,
        session_id=request.session_id,
        tenant_id=request.tenant_id,
        tokenizer=tokenizer,
    )
    is_ok = served.status == OK
    told = served.prompt_tokens is not None and served.cached_tokens is not None
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
        if is_ok and told
        else None,
        metadata=about,
    )
