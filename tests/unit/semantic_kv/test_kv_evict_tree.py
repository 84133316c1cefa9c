"""What eviction means in a tree, by hand; and the reference figures of the Mooncake trace."""

from __future__ import annotations

import numpy as np
import pytest
from scripts.data.folder import REAL_DATA

from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.spec import cache_spec
from semantic_kv.simulate import simulate
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace
from sembase.trace.load import load_trace

MOONCAKE = REAL_DATA / "traces" / "mooncake_conversation_trace.jsonl.gz"
# SIMULATOR.md, "Reference figures": capacity in blocks to hit blocks over all blocks
FIGURES = {
    "fifo": {1_000: 0.0445, 5_000: 0.1116, 10_000: 0.2109, 50_000: 0.3544},
    "lru": {1_000: 0.0445, 5_000: 0.1118, 10_000: 0.2116, 50_000: 0.3546},
    "lfu": {1_000: 0.0774, 5_000: 0.1412, 10_000: 0.1873, 50_000: 0.3430},
}


def build(requests: list[list[int]]) -> BlockTrace:
    interner = TreeInterner()
    rows = [interner.add(0, np.array(keys, dtype=np.int64), 1) for keys in requests]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return block_trace("t", offsets, np.concatenate(rows), interner)


def evicted(requests: list[list[int]], evict: str, capacity: int) -> list[int]:
    replay = CompiledReplay(cache_spec(capacity=capacity, evict=evict), journal_entries=1_000)
    replay.feed(build(requests))
    return [int(~entry) for entry in replay.journal if entry < 0]


@pytest.mark.parametrize("evict", ["fifo", "lru", "lfu", "sieve", "arc"])
def test_an_unused_chain_is_eaten_from_its_end(evict: str) -> None:
    assert evicted([[1, 2, 3], [4], [5], [6]], evict, 4)[:2] == [2, 1]


def test_fifo_keeps_an_old_inner_block_until_its_children_are_gone_then_drops_it_first() -> None:
    # 0 entered first but carries 1; 2 and 3 entered before 1 did.
    assert evicted([[1], [5], [6], [1, 2], [7], [8], [9]], "fifo", 4) == [1, 2, 3]


def test_sieve_spares_a_leaf_that_was_used_and_takes_the_next() -> None:
    # The used 0 loses its mark and 1 goes; the hand is then past the youngest and comes back to 0, unused since.
    assert evicted([[1], [2], [1], [3], [4]], "sieve", 2) == [1, 0]


def test_sieve_lets_a_parent_take_the_place_of_its_last_child() -> None:
    # After the leaf 1 has gone, its parent 0 takes its place and the hand is on it: 0 goes before the younger 2.
    assert evicted([[1, 2], [3], [4], [5]], "sieve", 3) == [1, 0]


def test_s3fifo_lets_newcomers_go_before_the_main_queue() -> None:
    # The first four fill the main queue; after the first eviction newcomers pass through the small one, and go first.
    assert evicted([[1, 2, 3], [4], [5], [6], [7]], "s3fifo", 4) == [2, 4, 5]


def test_s3fifo_remembers_who_left_early() -> None:
    first = [[key] for key in range(30)]
    replay = CompiledReplay(cache_spec(capacity=20, evict="s3fifo"), journal_entries=1_000)
    replay.feed(build([*first, [0], *[[key] for key in range(100, 140)], [0]]))
    assert replay.result().per_request_hit_blocks[-1] == 1  # back from the ghost it went to the main queue and stayed


@pytest.mark.shared_data
@pytest.mark.skipif(not MOONCAKE.exists(), reason="the shared traces are not beside the repository")
def test_reference_figures_of_the_mooncake_conversation_trace() -> None:
    trace = load_trace(MOONCAKE)
    for evict, figures in FIGURES.items():
        for capacity, expected in figures.items():
            ratio = simulate(trace, capacity=capacity, evict=evict).hit_ratio
            assert ratio == pytest.approx(expected, abs=0.002), (evict, capacity)
