"""The compiled core against the plain-Python oracle: every admission, eviction and hit, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semantic_kv.cache.reference import ReferenceReplay
from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.result import CacheModel, Unit
from semantic_kv.cache.spec import CacheSpec, cache_spec
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace

POLICIES = ("fifo", "lru", "lfu", "s3fifo", "sieve", "arc")


def trace_of(requests: list[tuple[int, list[int]]]) -> BlockTrace:
    """Requests as (tenant, keys); a block's size and label follow from its key."""
    interner = TreeInterner()
    rows = []
    for tenant, keys in requests:
        column = np.array(keys, dtype=np.int64)
        rows.append(interner.add(tenant, column, (1 + column % 3).astype(np.int32), (column % 8).astype(np.uint8)))
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    nodes = np.concatenate([np.empty(0, np.int32), *rows])
    trace = block_trace("random", offsets, nodes, interner, arrival_ms=np.arange(len(rows), dtype=np.float64))
    trace.check()
    return trace


REQUESTS = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.integers(0, 3), max_size=7)),
    max_size=40,
)


def assert_same_decisions(spec: CacheSpec, trace: BlockTrace) -> None:
    oracle = ReferenceReplay(spec, trace)
    expected = oracle.run()
    compiled = CompiledReplay(spec, journal_entries=4 * trace.reference_count)
    compiled.feed(trace)
    found = compiled.result()
    assert compiled.journal.tolist() == oracle.journal
    for column in (
        "per_request_hit_blocks",
        "per_request_hit_tokens",
        "references_by_label",
        "hits_by_label",
        "evictions_by_label",
        "used_over_time",
    ):
        assert getattr(found, column).tolist() == getattr(expected, column).tolist(), column
    for count in ("references", "hit_blocks", "prompt_tokens", "hit_tokens", "admitted", "refused", "evicted"):
        assert getattr(found, count) == getattr(expected, count), count


@pytest.mark.parametrize("evict", POLICIES)
@settings(max_examples=120, deadline=None)
@given(
    requests=REQUESTS,
    capacity=st.integers(0, 14),
    model=st.sampled_from(["prefix_tree", "block_set"]),
    unit=st.sampled_from(["blocks", "tokens"]),
)
def test_compiled_core_decides_as_the_oracle(
    evict: str, requests: list[tuple[int, list[int]]], capacity: int, model: CacheModel, unit: Unit
) -> None:
    assert_same_decisions(cache_spec(capacity=capacity, evict=evict, model=model, unit=unit), trace_of(requests))


@pytest.mark.parametrize("evict", POLICIES)
@pytest.mark.parametrize("model", ["prefix_tree", "block_set"])
def test_longer_traces_at_sizes_where_ghosts_and_queues_work(evict: str, model: CacheModel) -> None:
    rng = np.random.default_rng(7)
    requests = [
        (int(rng.integers(2)), rng.zipf(1.4, size=rng.integers(1, 6)).clip(max=12).tolist()) for _ in range(400)
    ]
    trace = trace_of(requests)
    for capacity in (20, 45, 90):
        assert_same_decisions(cache_spec(capacity=capacity, evict=evict, model=model), trace)
        assert_same_decisions(cache_spec(capacity=capacity, evict=evict, model="block_set"), trace.flattened())
