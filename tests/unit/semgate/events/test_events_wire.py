"""KV events as vLLM and SGLang write them, as older engines wrote them, and as no engine should."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ContractError
from sembase.event_batch import published_s
from semgate.events.numbers import MAX_BLOCKS
from semgate.events.wire import (
    MAX_BLOCK_TOKENS,
    MAX_EXTRA_KEYS,
    MAX_NAME_CHARACTERS,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Cleared,
    Removed,
    Stored,
    Unread,
    WireEvent,
    decode_batch,
    encode_batch,
    engine_hash,
)


def batch_of(*events: object, rank: object = 0) -> bytes:
    return msgspec.msgpack.encode([12.5, list(events), rank])


def only_stored(payload: bytes) -> Stored:
    (event,) = decode_batch(payload)
    assert isinstance(event, Stored)
    return event


VLLM: dict[str, Any] = {
    "type": "BlockStored",
    "block_hashes": [bytes(24) + (7).to_bytes(8, "big"), bytes(24) + (8).to_bytes(8, "big")],
    "parent_block_hash": None,
    "token_ids": [1, 2, 3, 4],
    "block_size": 2,
    "lora_id": None,
    "medium": "GPU",
    "lora_name": None,
    "extra_keys": [["salt of a tenant"], None],
    "group_idx": 0,
    "kv_cache_spec_kind": "full_attention",
    "session_id": "unknown to us",
}


def test_a_batch_of_vllm() -> None:
    payload = batch_of(VLLM, {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU", "group_idx": 0})
    stored, removed = decode_batch(payload)
    assert isinstance(stored, Stored)
    assert isinstance(removed, Removed)
    assert stored.hashes.tolist() == [7, 8]
    assert stored.tokens.tolist() == [1, 2, 3, 4]
    assert (stored.salt, stored.lora, stored.extras, stored.parent) == ("salt of a tenant", None, None, None)
    assert (stored.group, stored.group_kind, stored.medium) == (0, "full_attention", "GPU")
    assert removed.hashes.tolist() == [7]
    assert published_s(payload) == 12.5


def test_a_batch_of_sglang() -> None:
    event = {
        "type": "BlockStored",
        "block_hashes": [-5, 2**63 - 1],
        "parent_block_hash": -9,
        "token_ids": [1, 2],
        "block_size": 1,
        "lora_id": None,
        "cache_salt": "a salt",
    }
    stored = only_stored(batch_of(event, rank=None))
    assert stored.hashes.tolist() == [2**64 - 5, 2**63 - 1]
    assert stored.parent == 2**64 - 9
    assert stored.salt == "a salt"


def test_the_older_array_form() -> None:
    batch = decode_batch(
        batch_of(
            ["BlockStored", [7], None, [1, 2], 2, None, "GPU"], ["BlockRemoved", [7]], ["AllBlocksCleared"], rank=None
        )
    )
    stored, removed, cleared = batch
    assert isinstance(stored, Stored)
    assert (stored.medium, stored.block_tokens) == ("GPU", 2)
    assert isinstance(removed, Removed)
    assert isinstance(cleared, Cleared)


def test_bytes_and_integers_of_one_hash_agree() -> None:
    digest = bytes(range(32))
    assert engine_hash(digest) == engine_hash(int.from_bytes(digest, "big") & (2**64 - 1))


def test_adapters_images_and_salts_are_distinguished() -> None:
    event = {**VLLM, "lora_name": "adapter", "lora_id": 3}
    keys = [["adapter", ["image", -4], "a salt"], ["adapter", ["image", -6]]]
    stored = only_stored(batch_of({**event, "extra_keys": keys}))
    assert (stored.lora, stored.salt) == ("adapter", "a salt")
    assert stored.extras is not None
    assert stored.extras.all()
    other = only_stored(batch_of({**event, "extra_keys": [keys[0], ["adapter", ["other", -6]]]}))
    assert other.extras is not None
    assert (stored.extras == other.extras).tolist() == [True, False]
    plain = only_stored(batch_of({**event, "extra_keys": [["adapter"], ["adapter"]]}))
    assert (plain.salt, plain.extras) == (None, None)
    later = {**event, "parent_block_hash": 5, "extra_keys": [["adapter", "a digest of embeddings"], ["adapter"]]}
    behind = only_stored(batch_of(later))
    assert behind.salt is None, "a salt is only in the first block of a prompt"
    assert behind.extras is not None


def test_an_adapter_known_by_number_only_is_an_adapter() -> None:
    stored = only_stored(batch_of({**VLLM, "lora_id": 3, "extra_keys": None}))
    assert stored.lora is not None


def test_events_that_cannot_be_read_cost_the_others_nothing() -> None:
    unknown: list[object] = [{"type": "BlockMoved", "block_hashes": [1]}, ["BlockMoved", 1]]
    malformed: list[object] = [
        *({"no type": 1}, {"type": 1}, 17, {}, [], [17]),
        {**VLLM, "token_ids": "text"},
        {**VLLM, "token_ids": [-1, 2, 3, 4]},
        {**VLLM, "token_ids": [2**32, 2, 3, 4]},
        {**VLLM, "block_hashes": None},
        {**VLLM, "block_hashes": [1] * (MAX_BLOCKS + 1)},
        {**VLLM, "block_size": 0},
        {**VLLM, "block_size": -1},
        {**VLLM, "block_size": MAX_BLOCK_TOKENS + 1},
        {**VLLM, "block_size": 2**64 - 1, "block_hashes": [], "token_ids": []},
        {**VLLM, "lora_name": "a" * (MAX_NAME_CHARACTERS + 1)},
        {**VLLM, "extra_keys": [[1] * (MAX_EXTRA_KEYS + 1), None]},
        ["BlockStored"],
    ]
    *unread, stored = decode_batch(batch_of(*unknown, *malformed, VLLM))
    assert unread == len(unknown) * [Unread.UNKNOWN] + len(malformed) * [Unread.MALFORMED]
    assert isinstance(stored, Stored)
    assert stored.hashes.tolist() == [7, 8]


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x80", msgspec.msgpack.encode([1.0]), b"\x91" * 5000])
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(ContractError, match="not a batch of KV events"):
        decode_batch(payload)


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(payload: bytes) -> None:
    with contextlib.suppress(ContractError):
        list(decode_batch(payload))
    published_s(payload)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=5), st.none() | st.integers(0, 2**64 - 1), st.data())
def test_what_we_write_we_read(hashes: list[int], parent: int | None, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 4))
    tokens = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=size * len(hashes), max_size=size * len(hashes)))
    events: list[WireEvent] = [
        BlockStored(list(hashes), parent, tokens, size, cache_salt="s"),
        BlockRemoved(list(hashes)),
        AllBlocksCleared(),
    ]
    payload = encode_batch(3.5, events)
    assert published_s(payload) == 3.5
    stored, removed, cleared = decode_batch(payload)
    assert isinstance(stored, Stored)
    assert isinstance(removed, Removed)
    assert isinstance(cleared, Cleared)
    assert (stored.hashes.tolist(), stored.parent, stored.tokens.tolist()) == (hashes, parent, tokens)
    assert stored.tokens.dtype == np.uint32
    assert removed.hashes.tolist() == hashes
