"""A prompt (of the service, a log) in, the blocks or the record of a trace out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from sembase.errors import ContractError
from sembase.segment.messages import Message
from sembase.segment.pieces import Piece
from sembase.segment.segments import Segment, segment_messages, segment_prompt
from sembase.tokenizer import TokenCounter, open_tokenizer
from sembase.trace.record import TraceBlock, TraceRecord

MAX_BLOCKS: Final = 1 << 18  # of a prompt in a log; a block takes about 400 bytes


def record_from_messages(
    messages: Sequence[Message],
    *,
    request_id: str,
    timestamp_ms: float,
    session_id: str | None = None,
    tenant_id: str | None = None,
    tokenizer: TokenCounter | None = None,
) -> TraceRecord:
    return _record(segment_messages(messages), request_id, timestamp_ms, session_id, tenant_id, tokenizer)


def record_from_prompt(
    prompt: str,
    *,
    request_id: str,
    timestamp_ms: float,
    session_id: str | None = None,
    tenant_id: str | None = None,
    tokenizer: TokenCounter | None = None,
) -> TraceRecord:
    return _record(segment_prompt(prompt), request_id, timestamp_ms, session_id, tenant_id, tokenizer)


def _record(
    segments: Iterable[Segment],
    request_id: str,
    timestamp_ms: float,
    session_id: str | None,
    tenant_id: str | None,
    tokenizer: TokenCounter | None,
) -> TraceRecord:
    counter = tokenizer or open_tokenizer(None)
    blocks = tuple(
        TraceBlock(s.label, max(1, counter.count(s.text)), content_hash=s.content_hash, text=s.text, position=position)
        for position, s in enumerate(segments)
    )
    if not blocks:
        raise ContractError(f"request {request_id}: the prompt contains no text")
    return TraceRecord(request_id, timestamp_ms, blocks, session_id=session_id, tenant_id=tenant_id)


def blocks_from_pieces(pieces: Iterable[Piece], counter: TokenCounter) -> tuple[TraceBlock, ...]:
    """Blocks with text where there is text; token ids and media are known by their digest only."""
    blocks = tuple(
        TraceBlock(
            piece.label,
            piece.tokens if piece.tokens is not None else max(1, counter.count(piece.text or "")),
            content_hash=hashlib.sha256(piece.content).hexdigest(),
            text=None if piece.text is None else piece.text.encode("utf-8", "replace").decode(),
            position=position,
            metadata={} if piece.media is None else {"media": piece.media},
        )
        for position, piece in enumerate(islice(pieces, MAX_BLOCKS + 1))
    )
    if len(blocks) > MAX_BLOCKS:
        raise ContractError(f"a prompt of more than {MAX_BLOCKS:,} parts (paragraphs, messages); remove its line")
    return blocks
