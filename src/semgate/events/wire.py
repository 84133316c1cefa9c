"""KV events on the wire: a msgpack payload of vLLM or SGLang in, typed events out; ``encode_batch`` for the other way.

Both maps with a ``type`` and the older array form are read, hashes may be integers or bytes, unknown fields are
ignored. An unreadable event is counted and does not affect the others.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from sembase.compiled import HAS_COMPILER
from sembase.errors import ContractError
from semgate.events.numbers import read_hashes, read_tokens
from semgate.index.keys import extra_key

EngineHash = int | bytes
_64_BITS: Final = (1 << 64) - 1


class BlockStored(msgspec.Struct, tag=True, omit_defaults=True, gc=False):
    """As vLLM 0.32 (``extra_keys``, groups) and SGLang 0.5 (``cache_salt``) publish it, without unused fields."""

    block_hashes: list[EngineHash]
    parent_block_hash: EngineHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    cache_salt: str | None = None


class BlockRemoved(msgspec.Struct, tag=True, omit_defaults=True, gc=False):
    block_hashes: list[EngineHash]
    medium: str | None = None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True, omit_defaults=True, gc=False):
    pass


WireEvent = BlockStored | BlockRemoved | AllBlocksCleared


class _RawStored(msgspec.Struct, tag="BlockStored", gc=False):
    """The same with the long lists left undecoded."""

    block_hashes: msgspec.Raw
    parent_block_hash: EngineHash | None
    token_ids: msgspec.Raw
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    cache_salt: str | None = None


class _RawRemoved(msgspec.Struct, tag="BlockRemoved", gc=False):
    block_hashes: msgspec.Raw
    medium: str | None = None
    group_idx: int | None = None


_ReadEvent = BlockStored | BlockRemoved | AllBlocksCleared | _RawStored | _RawRemoved


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks of one chain. ``extras`` distinguishes blocks of equal tokens, such as two images; ``None``: none do.

    The index checks that there are as many tokens as the blocks need: engines list fewer blocks than tokens for layers
    that skip some, and those are not stored.
    """

    hashes: NDArray[np.uint64]
    parent: int | None
    tokens: NDArray[np.uint32]
    block_tokens: int
    salt: str | None
    lora: str | None
    extras: NDArray[np.uint64] | None
    medium: str | None
    group: int | None
    group_kind: str | None


@dataclass(frozen=True, slots=True)
class Removed:
    hashes: NDArray[np.uint64]
    medium: str | None
    group: int | None


@dataclass(frozen=True, slots=True)
class Cleared:
    pass


Event = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class Batch:
    """``unknown`` events have an unknown type, ``malformed`` ones a known type and unreadable content."""

    published_s: float
    events: tuple[Event, ...]
    rank: int | None
    unknown: int = 0
    malformed: int = 0


class _WireBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[WireEvent]
    data_parallel_rank: int | None = None


class _RawBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_RawStored | _RawRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class _LooseBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class _Published(msgspec.Struct, array_like=True, gc=False):
    ts: float


# Numbers are read by a compiled loop where there is one.
_decoder: msgspec.msgpack.Decoder[_WireBatch] | msgspec.msgpack.Decoder[_RawBatch] = (
    msgspec.msgpack.Decoder(_RawBatch) if HAS_COMPILER else msgspec.msgpack.Decoder(_WireBatch)
)
_loose_decoder = msgspec.msgpack.Decoder(_LooseBatch)
_published_decoder = msgspec.msgpack.Decoder(_Published)
_TYPES: Final[dict[str, type[WireEvent]]] = {
    kind.__name__: kind for kind in (BlockStored, BlockRemoved, AllBlocksCleared)
}

# The array form lists the fields in the order in which vLLM declares them; SGLang has never used it.
_ARRAY_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "BlockStored": (
        *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
        *("extra_keys", "group_idx", "kv_cache_spec_kind"),
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}


def decode_batch(payload: bytes) -> Batch:
    """Raises ``ContractError`` when the payload is not a batch at all."""
    try:
        batch = _decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return _decode_loosely(payload)
    return _typed_batch(batch.ts, batch.events, batch.data_parallel_rank, unknown=0, malformed=0)


def published_s(payload: bytes) -> float | None:
    """When the engine made a batch, by its own clock, without decoding the rest; ``None`` if unreadable."""
    try:
        return _published_decoder.decode(payload).ts
    except (msgspec.DecodeError, RecursionError):
        return None


def encode_batch(published: float, events: Sequence[WireEvent], rank: int | None = 0) -> bytes:
    return msgspec.msgpack.encode(_WireBatch(published, list(events), rank))


def engine_hash(value: EngineHash) -> int:
    """64 bits of a hash. The last eight bytes, which is how vLLM itself makes an integer of its digests."""
    return int.from_bytes(value[-8:], "big") if isinstance(value, bytes) else value & _64_BITS


def _decode_loosely(payload: bytes) -> Batch:
    try:
        batch = _loose_decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ContractError(f"not a batch of KV events: {error}") from error
    readable: list[WireEvent] = []
    unknown = malformed = 0
    for raw in batch.events:
        fields = _named_fields(raw)
        kind = fields.pop("type", None)
        if not isinstance(kind, str) or kind not in _TYPES:
            unknown += 1
            continue
        try:
            readable.append(msgspec.convert(fields | {"type": kind}, _TYPES[kind]))
        except msgspec.ValidationError:
            malformed += 1
    return _typed_batch(batch.ts, readable, batch.data_parallel_rank, unknown=unknown, malformed=malformed)


def _named_fields(raw: object) -> dict[str, Any]:
    if isinstance(raw, dict):
        return {name: value for name, value in raw.items() if isinstance(name, str)}
    if isinstance(raw, list) and raw and isinstance(raw[0], str):
        return {"type": raw[0], **dict(zip(_ARRAY_FIELDS.get(raw[0], ()), raw[1:], strict=False))}
    return {}


def _typed_batch(ts: float, wire: Sequence[_ReadEvent], rank: int | None, *, unknown: int, malformed: int) -> Batch:
    events: list[Event] = []
    for event in wire:
        try:
            events.append(_typed(event))
        except (ValueError, OverflowError, TypeError):
            malformed += 1
    return Batch(ts, tuple(events), rank, unknown, malformed)


def _typed(event: _ReadEvent) -> Event:
    if isinstance(event, BlockStored | _RawStored):
        return _stored(event)
    if isinstance(event, BlockRemoved | _RawRemoved):
        return Removed(_hashes(event.block_hashes), event.medium, event.group_idx)
    return Cleared()


def _stored(event: BlockStored | _RawStored) -> Stored:
    parent = None if event.parent_block_hash is None else engine_hash(event.parent_block_hash)
    lora = event.lora_name
    if lora is None and event.lora_id is not None:
        lora = f"lora id {event.lora_id}"
    salt, extras = _split_extra_keys(event, lora)
    return Stored(
        hashes=_hashes(event.block_hashes),
        parent=parent,
        tokens=_tokens(event.token_ids),
        block_tokens=event.block_size,
        salt=salt,
        lora=lora,
        extras=extras,
        medium=event.medium,
        group=event.group_idx,
        group_kind=event.kv_cache_spec_kind,
    )


def _split_extra_keys(
    event: BlockStored | _RawStored, lora: str | None
) -> tuple[str | None, NDArray[np.uint64] | None]:
    """vLLM lists per block, untagged: the adapter's name, (image, offset) pairs, the salt in the first block of a
    prompt, digests of embeddings. The adapter and the salt name the chain; the rest makes blocks different."""
    salt = event.cache_salt
    if event.extra_keys is None:
        return salt, None
    extras = np.zeros(len(event.extra_keys), np.uint64)
    for block, keys in enumerate(event.extra_keys):
        rest = list(keys or ())
        if rest and rest[0] == lora and lora is not None:
            del rest[0]
        if block == 0 and event.parent_block_hash is None and salt is None:
            texts = [key for key in rest if isinstance(key, str)]
            if texts:
                salt = texts[0]
                rest.remove(salt)
        if rest:
            extras[block] = extra_key(msgspec.msgpack.encode(rest))
    return salt, extras if extras.any() else None


def _hashes(values: Sequence[EngineHash] | msgspec.Raw) -> NDArray[np.uint64]:
    if isinstance(values, msgspec.Raw):
        return read_hashes(values)
    return np.fromiter((engine_hash(value) for value in values), np.uint64, len(values))


def _tokens(values: Sequence[int] | msgspec.Raw) -> NDArray[np.uint32]:
    if isinstance(values, msgspec.Raw):
        return read_tokens(values)
    return np.array(array("I", values), np.uint32)
