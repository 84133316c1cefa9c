"""The trace record ``semantic_kv.trace.v1``: the labelled blocks of one request's prompt, and what was observed.

In: parsed JSON of one record; out: an immutable record. Unknown fields are rejected, so a misspelt one is not ignored.
A record says which reuse it can show (``visible_reuse``): ids of prefixes, for example, show no other reuse.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, cast, get_args

from sembase.errors import ContractError
from sembase.labels import LABELS
from sembase.trace.content_digests import ContentDigests, decode_digests

SCHEMA: Final = "semantic_kv.trace.v1"
MAX_TOKENS: Final = 2**31 - 1
T = TypeVar("T")
VisibleReuse = Literal["any_position", "block", "prefix", "none"]


@dataclass(frozen=True, slots=True)
class TraceBlock:
    """One labelled piece of a prompt, identified by the first of ``content_hash``, ``text`` and ``block_id`` it has."""

    semantic_type: str
    token_count: int
    content_hash: str | None = None
    text: str | None = None
    block_id: str | None = None
    position: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One request. ``None`` means unknown, never zero. ``tokenizer`` names what the token counts of blocks count."""

    request_id: str
    timestamp_ms: float
    blocks: tuple[TraceBlock, ...]
    session_id: str | None = None
    tenant_id: str | None = None
    model_name: str | None = None
    output_tokens: int | None = None
    observed_ttft_ms: float | None = None
    observed_total_latency_ms: float | None = None
    observed_prefix_hit_tokens: int | None = None
    observed_prefill_tokens: int | None = None
    visible_reuse: VisibleReuse | None = None
    tokenizer: str | None = None
    content_digests: ContentDigests | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt_tokens(self) -> int:
        return sum(block.token_count for block in self.blocks)

    @property
    def shows(self) -> VisibleReuse:
        """Reuse of tokens at any position, of whole blocks, of prefixes only (ids include all before them), or none."""
        if self.visible_reuse is not None:
            return self.visible_reuse
        if self.content_digests is not None:
            return "any_position"
        return "block" if any(block.text is None for block in self.blocks) else "any_position"

    def prompt_text(self) -> str:
        texts = [block.text for block in self.blocks if block.text is not None]
        if len(texts) != len(self.blocks):
            raise ContractError(
                f"request {self.request_id}: a block has no text; this needs the text of the prompts "
                "(kvmend proxy --redact-text false records it)"
            )
        return "".join(texts)


BLOCK_FIELDS: Final = ("block_id", "content_hash", "semantic_type", "token_count", "text", "position", "metadata")
RECORD_FIELDS: Final = (
    "request_id",
    "timestamp_ms",
    "session_id",
    "tenant_id",
    "model_name",
    "output_tokens",
    "observed_ttft_ms",
    "observed_total_latency_ms",
    "observed_prefix_hit_tokens",
    "observed_prefill_tokens",
    "visible_reuse",
    "tokenizer",
    "content_digests",
    "metadata",
)


def parse_record(value: object, where: str) -> TraceRecord:
    """``where`` prefixes every error message, for example ``trace.jsonl line 17``."""
    given = _object(value, where)
    schema = given.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise ContractError(f"{where}: schema is {schema!r}; this version reads {SCHEMA}")
    _reject_unknown(given, (*RECORD_FIELDS, "schema", "blocks"), where)
    blocks = given.get("blocks")
    if not isinstance(blocks, list) or not blocks:
        raise ContractError(f"{where}: 'blocks' must be a list of at least one block")
    parsed = tuple(parse_block(block, f"{where}, block {number}") for number, block in enumerate(blocks))
    return TraceRecord(
        request_id=_required(_text(given, "request_id", where), "request_id", where),
        timestamp_ms=_required(_number(given, "timestamp_ms", where, signed=True), "timestamp_ms", where),
        blocks=parsed,
        session_id=_text(given, "session_id", where),
        tenant_id=_text(given, "tenant_id", where),
        model_name=_text(given, "model_name", where),
        output_tokens=_count(given, "output_tokens", where),
        observed_ttft_ms=_number(given, "observed_ttft_ms", where),
        observed_total_latency_ms=_number(given, "observed_total_latency_ms", where),
        observed_prefix_hit_tokens=_count(given, "observed_prefix_hit_tokens", where),
        observed_prefill_tokens=_count(given, "observed_prefill_tokens", where),
        visible_reuse=_visible_reuse(given, where),
        tokenizer=_text(given, "tokenizer", where),
        content_digests=_digests(given, parsed, where),
        metadata=_object(given.get("metadata") or {}, f"{where}, metadata"),
    )


def parse_block(value: object, where: str) -> TraceBlock:
    given = _object(value, where)
    _reject_unknown(given, BLOCK_FIELDS, where)
    label = _required(_text(given, "semantic_type", where), "semantic_type", where)
    if label not in LABELS:
        raise ContractError(f"{where}: unknown semantic_type {label!r}; known: {', '.join(LABELS)}")
    block = TraceBlock(
        semantic_type=label,
        token_count=_required(_count(given, "token_count", where), "token_count", where),
        content_hash=_text(given, "content_hash", where),
        text=_text(given, "text", where, empty=True),
        block_id=_text(given, "block_id", where),
        position=_count(given, "position", where),
        metadata=_object(given.get("metadata") or {}, f"{where}, metadata"),
    )
    if block.token_count == 0:
        raise ContractError(f"{where}: token_count is 0; omit blocks without tokens")
    if block.content_hash is None and block.text is None and block.block_id is None:
        raise ContractError(f"{where}: needs content_hash, text or block_id; without one it can never match")
    return block


def record_as_json(record: TraceRecord) -> dict[str, Any]:
    """The record as JSON values without unknown fields; parsing it gives the same record."""
    given = {name: getattr(record, name) for name in RECORD_FIELDS}
    given["metadata"] = dict(record.metadata)
    given["content_digests"] = None if record.content_digests is None else record.content_digests.encode()
    kept = {name: value for name, value in given.items() if value is not None and value != {}}
    return {"schema": SCHEMA, **kept, "blocks": [block_as_json(block) for block in record.blocks]}


def block_as_json(block: TraceBlock) -> dict[str, Any]:
    given = {name: getattr(block, name) for name in BLOCK_FIELDS}
    given["metadata"] = dict(block.metadata)
    return {name: value for name, value in given.items() if value is not None and value != {}}


def _visible_reuse(given: Mapping[str, Any], where: str) -> VisibleReuse | None:
    value = given.get("visible_reuse")
    if value is not None and value not in get_args(VisibleReuse):
        raise ContractError(
            f"{where}: 'visible_reuse' must be one of {', '.join(get_args(VisibleReuse))}, found {value!r:.40}"
        )
    return cast(VisibleReuse | None, value)


def _digests(given: Mapping[str, Any], blocks: tuple[TraceBlock, ...], where: str) -> ContentDigests | None:
    encoded = _text(given, "content_digests", where)
    if encoded is None:
        return None
    digests, tokens = decode_digests(encoded, where), sum(block.token_count for block in blocks)
    if digests.token_count != tokens:
        raise ContractError(
            f"{where}: 'content_digests' has {digests.token_count} tokens, but the blocks have {tokens}"
        )
    return digests


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ContractError(f"{where}: expected a JSON object, found {type(value).__name__}")
    return value


def _reject_unknown(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    if not given.keys() <= set(known):
        unknown = sorted(str(name) for name in given if name not in known)
        raise ContractError(
            f"{where}: unknown {'field' if len(unknown) == 1 else 'fields'} {', '.join(unknown)}; "
            f"known: {', '.join(known)}. Put your own fields into 'metadata'"
        )


def _required(value: T | None, name: str, where: str) -> T:
    if value is None:
        raise ContractError(f"{where}: '{name}' is missing")
    return value


def _text(given: Mapping[str, Any], name: str, where: str, *, empty: bool = False) -> str | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not (value or empty):
        raise ContractError(f"{where}: '{name}' must be {'' if empty else 'non-empty '}text, found {value!r:.40}")
    return value


def _number(given: Mapping[str, Any], name: str, where: str, *, signed: bool = False) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or abs(value) > 1e300 or not math.isfinite(value) or (value < 0 and not signed):
        raise ContractError(
            f"{where}: '{name}' must be a finite number{'' if signed else ' >= 0'}, found {value!r:.40}"
        )
    return float(value)


def _count(given: Mapping[str, Any], name: str, where: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TOKENS:
        raise ContractError(f"{where}: '{name}' must be a whole number from 0 to {MAX_TOKENS}, found {value!r:.40}")
    return value
