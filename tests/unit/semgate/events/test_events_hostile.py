"""A message that no engine should send costs itself only: nothing raises, and the index stays as it was."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any, Final

import msgspec
import pytest
from tests.fakes.mutation import mutants

from sembase import ordered_stream
from sembase.event_batch import MAX_EVENTS, published_s
from semgate.events.apply import MAX_KNOWN_SALT_CHARACTERS, ReplicaSink
from semgate.events.wire import AllBlocksCleared, BlockRemoved, BlockStored, encode_batch
from semgate.index.blocks import BlockIndex
from semgate.index.keys import known_root_key

MUTANTS: Final = 6_000
TIME: Final = b"\xcb?\xf0\0\0\0\0\0\0"


def stored(first: int) -> BlockStored:
    return BlockStored([first, first + 1], None, list(range(first, first + 8)), 4, medium="GPU", group_idx=0)


VLLM: Final[dict[str, Any]] = {
    "type": "BlockStored",
    "block_hashes": [bytes(24) + (7).to_bytes(8, "big"), bytes(24) + (8).to_bytes(8, "big")],
    "parent_block_hash": None,
    "token_ids": [1, 200, 70_000, 4],
    "block_size": 2,
    "lora_name": "adapter",
    "extra_keys": [["adapter", ["image", -4], "a salt"], None],
    "group_idx": 0,
    "kv_cache_spec_kind": "full_attention",
}
SGLANG: Final[dict[str, Any]] = {
    "type": "BlockStored",
    "block_hashes": [-5, 2**63 - 1],
    "parent_block_hash": -9,
    "token_ids": [1, 2],
    "block_size": 1,
    "cache_salt": "a salt",
}
SEEDS: Final = (
    msgspec.msgpack.encode([1.0, [VLLM, {"type": "BlockRemoved", "block_hashes": [7], "medium": "GPU"}], 0]),
    msgspec.msgpack.encode([1.0, [SGLANG, {"type": "AllBlocksCleared"}], None]),
    msgspec.msgpack.encode([1.0, [["BlockStored", [7], None, [1, 2], 2, None, "GPU"], ["BlockRemoved", [7]]], None]),
    encode_batch(1.0, [stored(1), BlockRemoved([1]), AllBlocksCleared()]),
)


def new_sink(max_blocks: int = 1 << 10) -> tuple[ReplicaSink, BlockIndex]:
    index = BlockIndex(max_blocks)
    return ReplicaSink(index, index.add_slot(), "", on_adapter=lambda _: None), index


def test_no_mutant_raises_and_only_readable_events_change_the_index() -> None:
    sink, index = new_sink()

    async def scenario() -> None:
        await sink.deliver(encode_batch(1.0, [stored(1)]))
        held = index.dump(0)
        unread = 0
        for payload in mutants(SEEDS, MUTANTS):
            published_s(payload)
            applied = sink.counters.events
            await sink.deliver(payload)
            if sink.counters.events == applied:
                assert index.dump(0) == held
                unread += 1
            held = index.dump(0)
        assert unread > MUTANTS // 4, "most mutants are bad"
        sink.reset("restart")
        await sink.deliver(encode_batch(2.0, [stored(1)]))
        assert len(index.dump(0)) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [0, -1, 2**20 + 1, 2**62, 2**63, 2**64 - 1])
@pytest.mark.parametrize(("hashes", "tokens"), [([], []), ([1], [1]), ([], [1])])
def test_an_absurd_block_size_is_malformed(size: int, hashes: list[int], tokens: list[int]) -> None:
    sink, index = new_sink()
    asyncio.run(sink.deliver(encode_batch(1.0, [BlockStored(list(hashes), None, tokens, size)])))
    assert (sink.counters.malformed_events, index.blocks(0), sink.block_tokens) == (1, 0, None)


def test_a_refused_event_does_not_choose_the_group_that_is_followed() -> None:
    sink, index = new_sink()
    bad = BlockStored([1], None, [], 4, medium="GPU", group_idx=99, lora_name="nobody")
    asyncio.run(sink.deliver(encode_batch(1.0, [bad, stored(1)])))
    assert (sink.counters.malformed_events, index.blocks(0), sink.group, sink.adapters) == (1, 2, 0, set())


def test_an_error_of_the_index_costs_its_event_only(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, index = new_sink()
    monkeypatch.setattr(index, "removed", lambda *_: 1 // 0)
    asyncio.run(sink.deliver(encode_batch(1.0, [BlockRemoved([1], medium="GPU"), stored(1)])))
    assert (sink.counters.malformed_events, index.blocks(0)) == (1, 2)


def array(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


def event(**fields: bytes) -> bytes:
    """One event, its values already packed."""
    known = {"type": msgspec.msgpack.encode("BlockStored"), "block_hashes": b"\x91\x01", "parent_block_hash": b"\xc0"}
    raw = known | {"token_ids": b"\x91\x01", "block_size": b"\x01"} | fields
    return msgspec.msgpack.encode({name: msgspec.Raw(value) for name, value in raw.items()})


MANY: Final = 1 << 21
MAPS: Final = array(MANY) + b"\x80" * MANY


SHAPES: Final = {
    "events": MAPS,
    "one event": b"\x91" + MAPS,
    "lists": b"\x91" + array(MANY) + b"\x90" * MANY,
    "type": b"\x91" + event(type=MAPS),
    "new field": b"\x91" + event(new_field=MAPS),
    "tokens": b"\x91" + event(token_ids=MAPS),
    "hashes": b"\x91" + event(block_hashes=MAPS),
    "extra keys": b"\x91" + event(extra_keys=MAPS),
    "extra keys of a block": b"\x91" + event(extra_keys=b"\x91" + MAPS),
    "one extra key": b"\x91" + event(extra_keys=b"\x91\x91" + MAPS),
    "key of a map": b"\x91\x81" + MAPS + b"\x00",
}


@pytest.mark.parametrize("events", SHAPES.values(), ids=SHAPES)
def test_what_a_message_takes_in_memory_is_bounded_by_its_bytes(events: bytes) -> None:
    """As objects, two million empty maps are 150 MB. Token ids of one byte become four."""
    sink, index = new_sink()
    payload = b"\x93" + TIME + events + b"\x00"

    async def scenario() -> int:
        await sink.deliver(encode_batch(1.0, [stored(1)]))
        held = index.dump(0)
        tracemalloc.start()
        await sink.deliver(payload)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert held <= index.dump(0)
        return peak

    assert asyncio.run(scenario()) < 5 * len(payload)


def test_more_events_than_an_honest_message_has_are_refused_together() -> None:
    sink, _ = new_sink()
    for count in (MAX_EVENTS, MAX_EVENTS + 1):
        asyncio.run(sink.deliver(b"\x93" + TIME + array(count) + b"\x80" * count + b"\x00"))
    assert (sink.counters.malformed_events, sink.counters.malformed_batches) == (MAX_EVENTS, 1)


def test_other_tasks_run_between_the_events_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_stream, "SLICE_SECONDS", 0.0)
    sink, index = new_sink()

    async def scenario() -> None:
        delivering = asyncio.create_task(sink.deliver(encode_batch(1.0, [stored(10 * number) for number in range(50)])))
        seen = set()
        while not delivering.done():
            await asyncio.sleep(0)
            seen.add(index.blocks(0))
        assert len(seen) >= 50

    asyncio.run(scenario())


def test_the_root_of_a_long_salt_is_not_kept() -> None:
    sink, index = new_sink()
    known_root_key.cache_clear()
    for length in (MAX_KNOWN_SALT_CHARACTERS, MAX_KNOWN_SALT_CHARACTERS + 1):
        asyncio.run(sink.deliver(encode_batch(1.0, [BlockStored([length], None, [1], 1, cache_salt="s" * length)])))
    assert (known_root_key.cache_info().currsize, index.blocks(0)) == (1, 2)
