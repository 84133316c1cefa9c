"""Which events reach the index, and under which namespace."""

from __future__ import annotations

import asyncio

import numpy as np

from semgate.events.apply import ReplicaSink
from semgate.events.wire import AllBlocksCleared, BlockRemoved, BlockStored, WireEvent, encode_batch
from semgate.index.blocks import BlockIndex
from semgate.index.keys import request_keys, root_key

TOKENS = list(range(8))


def new_sink() -> tuple[ReplicaSink, BlockIndex, list[str]]:
    index, adapters = BlockIndex(), list[str]()
    return ReplicaSink(index, index.add_slot(), "model", on_adapter=adapters.append), index, adapters


def deliver(sink: ReplicaSink, *events: WireEvent) -> None:
    asyncio.run(sink.deliver(encode_batch(1.0, events)))


def longest(index: BlockIndex, salt: str | None = None, lora: str | None = None) -> int:
    keys = request_keys(np.array(TOKENS, np.uint32), 4, root_key("model", salt, lora))
    return int(index.longest(keys)[0])


def stored(hash_: int = 1, **more: object) -> BlockStored:
    return BlockStored([hash_, hash_ + 1], None, TOKENS, 4, **more)  # type: ignore[arg-type]


def test_salts_and_adapters_have_namespaces_of_their_own() -> None:
    sink, index, adapters = new_sink()
    deliver(sink, stored(1, cache_salt="a"))
    assert (longest(index, "a"), longest(index), longest(index, "b")) == (2, 0, 0)
    deliver(sink, stored(11, lora_name="adapter", extra_keys=[["adapter"], ["adapter"]]))
    assert (longest(index, None, "adapter"), longest(index)) == (2, 0)
    assert adapters == ["adapter"]
    assert sink.block_tokens == 4


def test_other_mediums_and_layers_that_keep_no_whole_prefix_are_passed_over() -> None:
    sink, index, _ = new_sink()
    deliver(sink, stored(medium="CPU"), stored(group_idx=1, kv_cache_spec_kind="sliding_window"))
    assert index.blocks(0) == 0
    deliver(sink, stored(group_idx=2, kv_cache_spec_kind="full_attention", medium="GPU"))
    deliver(sink, BlockRemoved([1], medium="CPU", group_idx=2), BlockRemoved([1], medium="GPU", group_idx=1))
    assert longest(index) == 2
    assert sink.counters.passed_over == 4
    deliver(sink, BlockRemoved([1], medium="GPU", group_idx=2))
    assert (longest(index), index.blocks(0)) == (0, 1)


def test_clearing_by_the_engine_and_by_the_stream() -> None:
    sink, index, _ = new_sink()
    deliver(sink, stored(), AllBlocksCleared())
    assert index.blocks(0) == 0
    deliver(sink, stored(group_idx=0))
    sink.reset("restart")
    assert index.blocks(0) == 0
    deliver(sink, stored(group_idx=1))
    assert longest(index) == 2, "a new life may number its layers otherwise"


def test_blocks_with_too_few_tokens_are_malformed() -> None:
    sink, index, _ = new_sink()
    deliver(sink, BlockStored([1, 2], None, TOKENS[:5], 4), BlockStored([1], None, [], 0))
    asyncio.run(sink.deliver(b"\xc1"))
    assert (sink.counters.malformed_events, sink.counters.malformed_batches) == (2, 1)
    assert index.blocks(0) == 0
