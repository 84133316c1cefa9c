"""Sampling of whole trees: what is drawn is a trace, units stay whole, the curve comes out near the exact one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semantic_kv.sampling import capacity_ladder, sample_trace, sampling_units, take_requests
from semantic_kv.simulate import simulate
from semantic_kv.workload import make_workload
from sembase.errors import ConfigurationError
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace

Requests = list[list[int]]


def traced(requests: Requests, sessions: list[int] | None = None) -> BlockTrace:
    interner = TreeInterner()
    nodes = [interner.add(-1, np.array(keys, np.int64), np.full(len(keys), 16, np.int32)) for keys in requests]
    offsets = np.cumsum([0, *(len(keys) for keys in requests)]).astype(np.int64)
    known = {} if sessions is None else {"session": np.array(sessions, np.int32)}
    flat = np.concatenate([np.asarray(row, np.int32) for row in nodes]) if nodes else np.empty(0, np.int32)
    return block_trace("made", offsets, flat, interner, block_tokens=16, **known)


requests_of_small_ids = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=25)


@given(requests_of_small_ids, st.data())
def test_taken_requests_are_a_sound_trace_with_the_same_reuse(requests: Requests, data: st.DataObject) -> None:
    trace = traced(requests)
    chosen = sorted(data.draw(st.sets(st.integers(0, len(requests) - 1), min_size=1)))
    taken = take_requests(trace, np.array(chosen, np.int64), "taken")
    taken.check()
    afresh = traced([requests[i] for i in chosen])
    assert np.array_equal(taken.nodes, afresh.nodes), "numbered in order of first sight, as a trace of its own"
    assert np.array_equal(taken.parent, afresh.parent)  # type: ignore[arg-type]
    assert np.array_equal(taken.content, afresh.content)


@given(requests_of_small_ids)
def test_a_sample_of_everything_is_the_trace(requests: Requests) -> None:
    trace = traced(requests)
    whole = sample_trace(trace, 1.0)
    assert np.array_equal(whole.nodes, trace.nodes)
    assert np.array_equal(whole.offsets, trace.offsets)


@given(st.integers(0, 50))
def test_sessions_are_drawn_whole_and_always_the_same(draw: int) -> None:
    sessions = [i % 40 for i in range(400)]
    trace = traced([[s, i] for i, s in enumerate(sessions)], sessions)
    first, second = sample_trace(trace, 0.3, draw), sample_trace(trace, 0.3, draw)
    assert np.array_equal(first.session, second.session)
    kept, counts = np.unique(first.session, return_counts=True)
    assert set(counts) <= {10}
    assert len(kept) < 40


def test_draws_differ_and_keep_about_their_share() -> None:
    trace = traced([[s, i] for i, s in enumerate(range(2_000))], list(range(2_000)))
    sizes = [sample_trace(trace, 0.2, draw).request_count for draw in range(5)]
    assert len({tuple(sample_trace(trace, 0.2, draw).session[:20]) for draw in range(5)}) == 5
    assert all(320 <= size <= 480 for size in sizes), sizes


def test_a_shared_stem_does_not_make_everything_one_unit() -> None:
    """All requests share a root, as behind one system prompt; the units are the branches below it."""
    trace = traced([[0, 1 + i % 500, 1_000 + i % 500] for i in range(5_000)])
    units = sampling_units(trace)
    assert len(np.unique(units)) == 500
    branch = trace.nodes[trace.offsets[:-1] + 1]
    assert all(len(np.unique(units[branch == name])) == 1 for name in np.unique(branch)[:50])


def test_separate_trees_are_units_of_their_own() -> None:
    trace = traced([[i % 1_000, 2_000 + i % 1_000, i] for i in range(4_000)])
    units = sampling_units(trace)
    roots = trace.nodes[trace.offsets[:-1]]
    assert np.array_equal(units, roots)


def test_the_sampled_curve_is_near_the_exact_one() -> None:
    """Sessions that come back, many of them: half of the sessions in half of the cache."""
    trace = make_workload("multi_turn_chat", seed=5, sessions=300, requests_per_session=6).trace
    errors = []
    for capacity in (100, 300, 900):
        exact = simulate(trace, capacity=capacity).hit_ratio
        sampled = simulate(sample_trace(trace, 0.5), capacity=capacity // 2).hit_ratio
        assert exact is not None
        assert sampled is not None
        errors.append(abs(exact - sampled))
    assert max(errors) < 0.06, errors


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1])
def test_a_rate_outside_is_refused(rate: float) -> None:
    with pytest.raises(ConfigurationError, match="sample rate"):
        sample_trace(traced([[1]]), rate)


def test_the_ladder_of_capacities_ends_where_everything_fits() -> None:
    trace = traced([[i, i + 1] for i in range(3_000)])
    ladder = capacity_ladder(trace, "blocks")
    assert list(ladder) == sorted(set(ladder))
    assert ladder[-1] >= 0.95 * trace.node_count
    assert ladder[0] <= 0.01 * trace.node_count
    assert capacity_ladder(trace, "tokens")[-1] >= 0.95 * 16 * trace.node_count
