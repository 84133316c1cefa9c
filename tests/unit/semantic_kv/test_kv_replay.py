"""Laws of a cache whatever the policy, streams in chunks, and the front door's refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.result import CacheModel, Unit
from semantic_kv.cache.spec import cache_spec
from semantic_kv.simulate import simulate
from sembase.errors import ConfigurationError
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace

POLICIES = ("fifo", "lru", "lfu", "s3fifo", "sieve", "arc")


def build(requests: list[list[int]], tokens: int = 4) -> BlockTrace:
    interner = TreeInterner()
    rows = [interner.add(0, np.array(keys, dtype=np.int64), tokens) for keys in requests]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return block_trace("t", offsets, np.concatenate([np.empty(0, np.int32), *rows]), interner, block_tokens=tokens)


REQUESTS = st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=30)


@settings(max_examples=100, deadline=None)
@given(
    requests=REQUESTS,
    capacity=st.integers(0, 20),
    evict=st.sampled_from(POLICIES),
    model=st.sampled_from(["prefix_tree", "block_set"]),
    unit=st.sampled_from(["blocks", "tokens"]),
)
def test_books_balance_and_the_budget_holds(
    requests: list[list[int]], capacity: int, evict: str, model: CacheModel, unit: Unit
) -> None:
    trace = build(requests)
    run = simulate(trace, capacity=capacity, evict=evict, model=model, unit=unit)
    assert run.references == trace.reference_count
    assert run.prompt_tokens == 4 * run.references
    assert run.hit_tokens == 4 * run.hit_blocks
    assert run.references_by_label.sum() == run.references
    assert run.hits_by_label.sum() == run.hit_blocks == run.per_request_hit_blocks.sum()
    assert run.evictions_by_label.sum() == run.evicted <= run.admitted
    used = run.used_over_time[:, 1]
    assert (used <= capacity).all()
    if len(used):
        assert used[-1] == (run.admitted - run.evicted) * (4 if unit == "tokens" else 1)
    if model == "prefix_tree":
        assert run.hit_blocks + run.admitted + run.refused == run.references


@settings(max_examples=60, deadline=None)
@given(requests=REQUESTS, capacity=st.integers(1, 12), evict=st.sampled_from(POLICIES), cut=st.integers(0, 30))
def test_a_stream_in_chunks_that_grow_is_the_whole_trace(
    requests: list[list[int]], capacity: int, evict: str, cut: int
) -> None:
    cut = min(cut, len(requests))
    whole = CompiledReplay(cache_spec(capacity=capacity, evict=evict), journal_entries=1_000)
    whole.feed(build(requests))
    parts = CompiledReplay(cache_spec(capacity=capacity, evict=evict), journal_entries=1_000)
    parts.feed(build(requests[:cut]))  # knows only the nodes so far
    parts.feed(build(requests).window(cut, len(requests)))
    assert parts.journal.tolist() == whole.journal.tolist()
    assert parts.result().per_request_hit_blocks.tolist() == whole.result().per_request_hit_blocks.tolist()


@pytest.mark.parametrize("evict", POLICIES)
def test_a_cache_that_holds_everything_misses_only_first_uses(evict: str) -> None:
    trace = build([[1, 2, 3], [1, 2, 4], [1, 2, 3], [5], [1, 2, 4]])
    run = simulate(trace, capacity=trace.node_count, evict=evict)
    assert run.hit_blocks == trace.reference_count - trace.node_count
    assert (run.evicted, run.refused) == (0, 0)


def test_a_prefix_cache_stops_at_the_first_absent_block_and_a_block_set_does_not() -> None:
    trace = build([[1, 2, 3], [9, 2, 3]])
    assert simulate(trace, capacity=9).per_request_hit_blocks.tolist() == [0, 0]
    assert simulate(trace, capacity=9, model="block_set").per_request_hit_blocks.tolist() == [0, 2]


def test_blocks_of_the_request_served_are_pinned_and_the_rest_is_refused() -> None:
    run = simulate(build([[1, 2, 3, 4, 5]]), capacity=3)
    assert (run.admitted, run.refused, run.evicted) == (3, 2, 0)


def test_columns_of_a_mapped_file_are_accepted() -> None:
    trace = build([[1, 2], [1, 2]])
    trace.nodes.setflags(write=False)
    assert simulate(trace, capacity=4).hit_blocks == 2


def test_long_runs_keep_a_bounded_timeline() -> None:
    trace = build([[number % 7] for number in range(3_000)])
    replay = CompiledReplay(cache_spec(capacity=3), per_request=False)
    for start in range(0, 3_000, 100):
        replay.feed(trace.window(start, start + 100))
    run = replay.result()
    assert 100 < len(run.used_over_time) <= 512
    assert len(run.per_request_hit_blocks) == 0
    assert run.references == 3_000


def test_progress_reports_every_request_once() -> None:
    reported: list[int] = []
    simulate(build([[1]] * 95), capacity=1, progress=reported.append)
    assert sum(reported) == 95
    assert len(reported) > 5


def test_an_empty_trace_has_no_hit_ratio() -> None:
    assert simulate(build([]), capacity=3).hit_ratio is None
    assert simulate(build([[]]), capacity=3).hit_ratio is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capacity": -1}, "capacity must not be negative"),
        ({"evict": "lruu"}, "Did you mean 'lru'"),
        ({"admit": "alway"}, "Did you mean 'always'"),
        ({"model": "tree"}, "model must be one of"),
        ({"unit": "bytes"}, "unit must be one of"),
        ({"options": {"lru": {}}}, "under 'admit' and 'evict'"),
        ({"evict": "s3fifo", "options": {"evict": {"small_ration": 0.2}}}, "Did you mean 'small_ratio'"),
    ],
)
def test_what_a_user_gets_wrong_is_reported_in_one_line(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        simulate(build([[1]]), **{"capacity": 1, **wrong})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_block_set_trace_cannot_pretend_to_be_a_tree() -> None:
    with pytest.raises(ConfigurationError, match="use model='block_set'"):
        simulate(build([[1]]).as_block_set(), capacity=1)
