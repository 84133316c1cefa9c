"""A live prompt (collector, service) in, one trace record out."""

from __future__ import annotations

from collections.abc import Sequence

from sembase.errors import ContractError
from sembase.segment.messages import Message
from sembase.segment.segments import Segment, segment_messages, segment_prompt
from sembase.tokenizer import Tokenizer, open_tokenizer
from sembase.trace.record import TraceBlock, TraceRecord


def record_from_messages(
    messages: Sequence[Message],
    *,
    request_id: str,
    timestamp_ms: float,
    session_id: str | None = None,
    tenant_id: str | None = None,
    tokenizer: Tokenizer | None = None,
) -> TraceRecord:
    return _record(segment_messages(messages), request_id, timestamp_ms, session_id, tenant_id, tokenizer)


def record_from_prompt(
    prompt: str,
    *,
    request_id: str,
    timestamp_ms: float,
    session_id: str | None = None,
    tenant_id: str | None = None,
    tokenizer: Tokenizer | None = None,
) -> TraceRecord:
    return _record(segment_prompt(prompt), request_id, timestamp_ms, session_id, tenant_id, tokenizer)


def _record(
    segments: Sequence[Segment],
    request_id: str,
    timestamp_ms: float,
    session_id: str | None,
    tenant_id: str | None,
    tokenizer: Tokenizer | None,
) -> TraceRecord:
    counter = tokenizer or open_tokenizer(None)
    blocks = tuple(
        TraceBlock(s.label, max(1, counter.count(s.text)), content_hash=s.content_hash, text=s.text, position=position)
        for position, s in enumerate(segments)
    )
    if not blocks:
        raise ContractError(f"request {request_id}: the prompt contains no text")
    return TraceRecord(request_id, timestamp_ms, blocks, session_id=session_id, tenant_id=tenant_id)
