"""KV events on the wire: a msgpack payload of vLLM or SGLang in, typed events out; ``encode_batch`` for the other way.

Both maps with a ``type`` and the older array form are read, hashes may be integers or bytes, unknown fields are
ignored. Each event is decoded by itself: an unreadable one is counted and does not affect the others. An event of an
unknown type is skipped without decoding it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from sembase.compiled import HAS_COMPILER
from sembase.errors import ContractError
from sembase.event_batch import UNREADABLE, open_batch
from semgate.events.numbers import MAX_BLOCKS, read_hashes, read_tokens
from semgate.index.keys import extra_key

EngineHash = int | bytes
MAX_BLOCK_TOKENS: Final = 1 << 20
MAX_NAME_CHARACTERS: Final = 1024  # of an adapter
MAX_EXTRA_KEYS: Final = 256  # of one block
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
    block_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_BLOCK_TOKENS)]
    lora_id: int | None = None
    medium: str | None = None
    lora_name: Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)] | None = None
    extra_keys: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_BLOCKS)] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    cache_salt: str | None = None


class _RawRemoved(msgspec.Struct, tag="BlockRemoved", gc=False):
    block_hashes: msgspec.Raw
    medium: str | None = None
    group_idx: int | None = None


_RawEvent = _RawStored | _RawRemoved | AllBlocksCleared


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


class Unread(Enum):
    UNKNOWN = "unknown"  # a type this version does not know
    MALFORMED = "malformed"  # no type, or a known one and unreadable content


class _Kind(msgspec.Struct, gc=False):
    type: str


_event_decoder: Final[msgspec.msgpack.Decoder[_RawEvent]] = msgspec.msgpack.Decoder(_RawEvent)
_kind_decoder: Final = msgspec.msgpack.Decoder(_Kind)
_fields_decoder: Final = msgspec.msgpack.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(max_length=64)])
_keys_decoder: Final = msgspec.msgpack.Decoder(
    Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_EXTRA_KEYS)] | None
)
_text_decoder: Final = msgspec.msgpack.Decoder(str)
_hash_decoder: Final = msgspec.msgpack.Decoder(Annotated[list[EngineHash], msgspec.Meta(max_length=MAX_BLOCKS)])
_token_decoder: Final = msgspec.msgpack.Decoder(list[int])

# The array form lists the fields in the order in which vLLM declares them; SGLang has never used it.
_ARRAY_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "BlockStored": (
        *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
        *("extra_keys", "group_idx", "kv_cache_spec_kind"),
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}


def decode_batch(payload: bytes) -> Iterator[Event | Unread]:
    """Decodes an event when it is requested. Raises ``ContractError`` when the payload is not a batch at all."""
    try:
        batch = open_batch(payload)
    except UNREADABLE as error:
        raise ContractError(f"not a batch of KV events: {error}") from error
    return map(_read, batch.events)


def encode_batch(published: float, events: Sequence[WireEvent], rank: int | None = 0) -> bytes:
    return msgspec.msgpack.encode((published, events, rank))


def engine_hash(value: EngineHash) -> int:
    """64 bits of a hash. The last eight bytes, which is how vLLM itself makes an integer of its digests."""
    return int.from_bytes(value[-8:], "big") if isinstance(value, bytes) else value & _64_BITS


def _read(raw: msgspec.Raw) -> Event | Unread:
    try:
        return _typed(_event_decoder.decode(raw))
    except UNREADABLE:
        pass  # what the attempt allocated is released before the next
    return _read_array_form(raw)


def _read_array_form(raw: msgspec.Raw) -> Event | Unread:
    """An event in the older form, or why it is unreadable."""
    try:
        named = _with_names(raw)
        kind = _kind_decoder.decode(named).type
    except UNREADABLE:
        return Unread.MALFORMED
    if kind not in _ARRAY_FIELDS:
        return Unread.UNKNOWN
    if named is raw:
        return Unread.MALFORMED
    try:
        return _typed(_event_decoder.decode(named))
    except UNREADABLE:
        return Unread.MALFORMED


def _with_names(raw: msgspec.Raw) -> bytes | msgspec.Raw:
    """The array form as a map; a map as it is."""
    first = memoryview(raw)[0]
    if not (0x90 <= first < 0xA0 or first in (0xDC, 0xDD)):
        return raw
    kind, *values = _fields_decoder.decode(raw)
    name = _text_decoder.decode(kind)
    return msgspec.msgpack.encode({"type": name, **dict(zip(_ARRAY_FIELDS.get(name, ()), values, strict=False))})


def _typed(event: _RawEvent) -> Event:
    if isinstance(event, _RawStored):
        return _stored(event)
    if isinstance(event, _RawRemoved):
        return Removed(_hashes(event.block_hashes), event.medium, event.group_idx)
    return Cleared()


def _stored(event: _RawStored) -> Stored:
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


def _split_extra_keys(event: _RawStored, lora: str | None) -> tuple[str | None, NDArray[np.uint64] | None]:
    """vLLM lists per block, untagged: the adapter's name, (image, offset) pairs, the salt in the first block of a
    prompt, digests of embeddings. The adapter and the salt name the chain; the rest makes blocks different."""
    salt = event.cache_salt
    if event.extra_keys is None:
        return salt, None
    extras = np.zeros(len(event.extra_keys), np.uint64)
    for block, raw in enumerate(event.extra_keys):
        rest = _keys_decoder.decode(raw)
        if not rest:
            continue
        if lora is not None and _text(rest[0]) == lora:
            del rest[0]
        if block == 0 and event.parent_block_hash is None and salt is None:
            found = next(((place, text) for place, key in enumerate(rest) if (text := _text(key)) is not None), None)
            if found is not None:
                salt = found[1]
                del rest[found[0]]
        if rest:
            extras[block] = extra_key(msgspec.msgpack.encode(rest))
    return salt, extras if extras.any() else None


def _text(raw: msgspec.Raw) -> str | None:
    """``None`` for a value of another type."""
    first = memoryview(raw)[0]
    return _text_decoder.decode(raw) if 0xA0 <= first < 0xC0 or 0xD9 <= first <= 0xDB else None


def _hashes(raw: msgspec.Raw) -> NDArray[np.uint64]:
    if HAS_COMPILER:
        return read_hashes(raw)
    values = _hash_decoder.decode(raw)
    return np.fromiter((engine_hash(value) for value in values), np.uint64, len(values))


def _tokens(raw: msgspec.Raw) -> NDArray[np.uint32]:
    return read_tokens(raw) if HAS_COMPILER else np.array(array("I", _token_decoder.decode(raw)), np.uint32)
