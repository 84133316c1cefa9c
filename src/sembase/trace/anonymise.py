"""Anonymised traces: text, ids and names are replaced by digests under a secret key, and metadata is removed.

Each tenant has its own key, derived from the secret. Equal content of two tenants cannot be recognised as equal, and
guesses of short texts cannot be tested without the secret. Texts leave content digests behind, which count repeats at
any position; digests that a record has already are kept, under the key they were recorded with. Kept: labels, token
counts, order, time differences and timings.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from sembase.errors import ConfigurationError
from sembase.tokenizer import Tokenizer
from sembase.trace.build import content_key
from sembase.trace.content_digests import ContentDigests
from sembase.trace.digest_tokens import digest_key, digest_tokens
from sembase.trace.record import TraceBlock, TraceRecord
from sembase.trace.token_rows import TokenRows

MIN_KEY_BYTES: Final = 16
DIGEST_BYTES: Final = 16  # 32 hex digits: no collision expected among 2^60 blocks
KEPT_METADATA: Final = ("warm_up",)  # our own flags, and only if they are booleans


def new_key() -> bytes:
    return secrets.token_bytes(32)


def anonymise(
    records: Iterable[TraceRecord], key: bytes, *, tokenizer: Tokenizer | None = None
) -> Iterator[TraceRecord]:
    """Records with the same cache behaviour; time starts at the first request. Holds one record at a time.

    ``tokenizer`` is what the token counts of the records were made with; None is the built-in rule. A text with another
    token count gets no content digests.
    """
    if len(key) < MIN_KEY_BYTES:
        raise ConfigurationError(f"the key has {len(key)} bytes; use at least {MIN_KEY_BYTES} random bytes")
    start_ms: float | None = None
    rows = TokenRows(tokenizer)
    for record in records:
        start_ms = record.timestamp_ms if start_ms is None else start_ms
        yield _anonymise_record(record, key, start_ms, rows)


def _anonymise_record(record: TraceRecord, key: bytes, start_ms: float, rows: TokenRows) -> TraceRecord:
    # A request without a tenant has its own namespace, different from that of a tenant named "".
    tenant = b"\x00" if record.tenant_id is None else b"\x01" + record.tenant_id.encode("utf-8", "surrogatepass")
    tenant_key = hmac.new(key, b"tenant key" + tenant, hashlib.sha256).digest()
    kept = {name: value for name in KEPT_METADATA if isinstance(value := record.metadata.get(name), bool)}
    return replace(
        record,
        request_id=_digest(tenant_key, "request", record.request_id),
        timestamp_ms=record.timestamp_ms - start_ms,
        blocks=tuple(_anonymise_block(block, tenant_key) for block in record.blocks),
        session_id=None if record.session_id is None else _digest(tenant_key, "session", record.session_id),
        tenant_id=None if record.tenant_id is None else _digest(tenant_key, "tenant", record.tenant_id),
        model_name=None if record.model_name is None else _digest(key, "model", record.model_name),
        content_digests=_content_digests(record, tenant_key, rows),
        metadata=kept,
    )


def _content_digests(record: TraceRecord, tenant_key: bytes, rows: TokenRows) -> ContentDigests | None:
    if record.shows != "any_position" or record.content_digests is not None:
        return record.content_digests
    row = rows.of_record(record)
    return digest_tokens(row, digest_key(tenant_key)) if len(row) == record.prompt_tokens else None


def _anonymise_block(block: TraceBlock, tenant_key: bytes) -> TraceBlock:
    identity, tokens = content_key(block)
    return TraceBlock(
        semantic_type=block.semantic_type,
        token_count=block.token_count,
        content_hash=_digest(tenant_key, "content", f"{tokens} {identity}"),
        position=block.position,
    )


def _digest(key: bytes, purpose: str, value: str) -> str:
    message = purpose.encode() + b"\x00" + value.encode("utf-8", "surrogatepass")
    return hmac.new(key, message, hashlib.sha256).digest()[:DIGEST_BYTES].hex()
