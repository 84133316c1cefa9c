"""The clairvoyant figure is the optimum: no schedule of a small cache, searched through exhaustively, does better."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semantic_kv.bound import clairvoyant, greedy_clairvoyant, infinite
from semantic_kv.bound.next_use import NEVER, next_uses
from semantic_kv.simulate import simulate
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace

Paths = list[list[int]]
# up to seven requests over a tree of at most three levels and two or three keys a level
paths = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), min_size=1, max_size=7)


def tree_trace(rows: Paths, tokens_of: dict[int, int] | None = None) -> BlockTrace:
    interner, nodes = TreeInterner(), list[int]()
    offsets = [0]
    for row in rows:
        tokens = np.array([(tokens_of or {}).get(key, 1) for key in row], np.int32)
        nodes += interner.add(-1, np.array(row, np.int64), tokens).tolist()
        offsets.append(len(nodes))
    return block_trace("small", np.array(offsets, np.int64), np.array(nodes, np.int32), interner)


def _rows_of(trace: BlockTrace) -> list[tuple[int, ...]]:
    bounds = zip(trace.offsets[:-1], trace.offsets[1:], strict=True)
    return [tuple(int(node) for node in trace.nodes[start:stop]) for start, stop in bounds]


def _is_closed(kept: frozenset[int], parent: list[int]) -> bool:
    return all(parent[node] < 0 or parent[node] in kept for node in kept)


def best_by_search(trace: BlockTrace, capacity: int, *, pins: bool) -> int:
    """Every prefix-closed choice of what stays after every request; with `pins` the hit blocks must stay."""
    rows = _rows_of(trace)
    assert trace.parent is not None
    parent = [int(above) for above in trace.parent]

    @cache
    def best(request: int, resident: frozenset[int]) -> int:
        if request == len(rows):
            return 0
        row = rows[request]
        hits = next((at for at, node in enumerate(row) if node not in resident), len(row))
        must = frozenset(row[:hits]) if pins else frozenset[int]()
        free = sorted((resident | set(row)) - must)
        gain = 0
        for size in range(min(len(free), capacity - len(must)) + 1):
            for chosen in combinations(free, size):
                kept = must | frozenset(chosen)
                if _is_closed(kept, parent):
                    gain = max(gain, best(request + 1, kept))
        return hits + gain

    return best(0, frozenset())


@settings(max_examples=60, deadline=None)
@given(rows=paths, capacity=st.integers(0, 4))
def test_optimum_is_what_exhaustive_search_finds_without_pins(rows: Paths, capacity: int) -> None:
    trace = tree_trace(rows)
    bound = clairvoyant(trace, capacity=capacity)
    assert bound.standing == "optimum"
    assert bound.hit_blocks == best_by_search(trace, capacity, pins=False)


@settings(max_examples=60, deadline=None)
@given(rows=paths, capacity=st.integers(0, 4))
def test_the_optimum_is_reached_with_pins_too(rows: Paths, capacity: int) -> None:
    """By some schedule under all rules (search), and by the clairvoyant greedy cache."""
    trace = tree_trace(rows)
    best = best_by_search(trace, capacity, pins=True)
    assert clairvoyant(trace, capacity=capacity).hit_blocks == best
    assert greedy_clairvoyant(trace, capacity=capacity).hit_blocks == best
    assert simulate(trace, capacity=capacity, reference=True).hit_blocks <= best


def test_keeping_what_is_used_soonest_by_hand() -> None:
    """One slot, two blocks in turn: one of the two can be kept, LRU keeps none."""
    trace = tree_trace([[0], [1], [0], [1]])
    assert clairvoyant(trace, capacity=1).hit_blocks == 1
    assert simulate(trace, capacity=1, reference=True).hit_blocks == 0


def test_in_a_block_set_pins_can_keep_a_cache_below_the_bound() -> None:
    """Two slots: the third request hits block 0 for the last time and holds it, so block 2 cannot enter beside 1."""
    trace = tree_trace([[0], [1], [0, 2], [1], [2]]).as_block_set()
    bound = clairvoyant(trace, capacity=2, model="block_set")
    assert (bound.standing, bound.hit_blocks) == ("bound", 3)
    runs = [
        simulate(trace, capacity=2, model="block_set", evict=evict, reference=True) for evict in ("lru", "fifo", "lfu")
    ]
    assert all(run.hit_blocks < 3 for run in runs)


@settings(max_examples=40, deadline=None)
@given(rows=paths, sizes=st.lists(st.integers(1, 4), min_size=3, max_size=3), capacity=st.integers(0, 8))
def test_token_bound_is_above_every_whole_block_schedule(rows: Paths, sizes: list[int], capacity: int) -> None:
    trace = tree_trace(rows, dict(enumerate(sizes)))
    bound = clairvoyant(trace, capacity=capacity, unit="tokens")
    assert bound.standing == "bound"
    assert bound.hit_blocks is None
    for evict in ("lru", "static_semantic"):
        run = simulate(trace, capacity=capacity, unit="tokens", evict=evict, reference=True)
        assert run.hit_tokens <= bound.hit_tokens <= infinite(trace).hit_tokens


@settings(max_examples=40, deadline=None)
@given(rows=paths)
def test_room_for_everything_reaches_the_ceiling(rows: Paths) -> None:
    trace = tree_trace(rows)
    ceiling = infinite(trace)
    assert clairvoyant(trace, capacity=trace.node_count).hit_blocks == ceiling.hit_blocks
    assert simulate(trace, capacity=trace.node_count, reference=True).hit_blocks == ceiling.hit_blocks
    assert greedy_clairvoyant(trace, capacity=trace.node_count).hit_blocks == ceiling.hit_blocks


def test_block_set_bound_says_when_a_repeated_block_spoils_it() -> None:
    once, twice = tree_trace([[0, 1], [0, 1]]), tree_trace([[0, 0], [0, 0]])
    assert clairvoyant(once, capacity=2, model="block_set").standing == "bound"
    repeated = clairvoyant(twice, capacity=2, model="block_set")
    assert (repeated.standing, repeated.hit_blocks) == ("attained", 2)


def test_next_use_is_the_next_request_or_never() -> None:
    trace = tree_trace([[0, 1], [0], [0, 1]])
    assert next_uses(trace.offsets, trace.nodes, trace.node_count).tolist() == [1, 2, 2, NEVER, NEVER]


@pytest.mark.parametrize("capacity", [1, 2, 3, 5])
def test_no_policy_beats_the_bound(capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    trace = tree_trace([rng.integers(0, 3, rng.integers(1, 5)).tolist() for _ in range(120)])
    most = clairvoyant(trace, capacity=capacity).hit_blocks
    assert most is not None
    for evict in ("lru", "static_semantic", "s3fifo", "sieve", "arc", "session_pace"):
        assert simulate(trace, capacity=capacity, evict=evict, reference=True).hit_blocks <= most
