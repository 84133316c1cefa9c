"""Blocks leave in the order in which their sessions are expected back; what a session left behind leaves first."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scripts.data.folder import REAL_DATA

from semantic_kv.bound import clairvoyant
from semantic_kv.cache.reference import ReferenceReplay
from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.spec import CacheSpec, cache_spec
from semantic_kv.policy.evict.session_pace import POLICY, SESSIONS
from semantic_kv.policy.registry import merged_options
from semantic_kv.simulate import simulate
from sembase.finish import STOP, TOOL_CALL
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace
from sembase.trace.load import load_trace


@dataclass(frozen=True)
class Call:
    session: int
    at_s: float
    blocks: tuple[int, ...]
    finish: int = TOOL_CALL


def trace_of(calls: list[Call]) -> BlockTrace:
    interner, nodes, offsets = TreeInterner(), list[int](), [0]
    for call in calls:
        ids = np.array(call.blocks, np.int64)
        nodes += interner.add(-1, ids, np.ones(len(ids), np.int32)).tolist()
        offsets.append(len(nodes))
    trace = block_trace("calls", np.array(offsets, np.int64), np.array(nodes, np.int32), interner)
    return replace(
        trace,
        session=np.array([call.session for call in calls], np.int32),
        arrival_ms=np.array([call.at_s * 1e3 for call in calls]),
        finish=np.array([call.finish for call in calls], np.int32),
    )


def spec_of(capacity: int) -> CacheSpec:
    return replace(cache_spec(capacity=capacity), evict=POLICY, evict_options=merged_options(POLICY, {}))


def last_hits(calls: list[Call], capacity: int) -> int:
    return int(_hits(trace_of(calls), capacity)[-1])


def _hits(trace: BlockTrace, capacity: int) -> NDArray[np.int32]:
    replay = CompiledReplay(spec_of(capacity))
    replay.feed(trace)
    hits = replay.result().per_request_hit_blocks
    assert hits is not None
    return hits


def grown(session: int, length: int) -> tuple[int, ...]:
    return tuple(1_000 * session + place for place in range(length))


def test_the_session_that_returns_slowly_leaves_before_one_that_was_used_earlier() -> None:
    quick = [Call(1, 2.0 * turn, grown(1, 4)) for turn in range(10)]
    slow = [Call(2, 100.0 * turn - 400.0, grown(2, 4)) for turn in range(5)]
    before = sorted([*quick, *slow], key=lambda call: call.at_s)
    calls = [*before, Call(2, 19.0, grown(2, 4)), Call(3, 20.0, grown(3, 4)), Call(1, 20.5, grown(1, 4))]
    assert last_hits(calls, 8) == 4
    calls[-1] = Call(2, 20.5, grown(2, 4))
    assert last_hits(calls, 8) == 0, "LRU would have kept it"


def test_a_prompt_that_replaces_the_history_makes_the_old_one_leave_first() -> None:
    old, new = (1, 2, 3, 4, 5, 6), (1, 2, 13, 14)
    calls = [Call(2, 0.0, grown(2, 4)), Call(1, 1.0, old), Call(1, 2.0, new), Call(3, 3.0, grown(3, 4))]
    assert last_hits([*calls, Call(2, 4.0, grown(2, 4))], 12) == 4, "four superseded blocks made room"
    assert last_hits([*calls, Call(1, 4.0, old)], 12) == 2


def test_a_prompt_with_another_head_supersedes_nothing() -> None:
    """A sub-agent works under the session's id; the session continues after it."""
    calls = [Call(2, 0.0, grown(2, 4)), Call(1, 1.0, grown(1, 4)), Call(1, 2.0, grown(8, 4)), Call(3, 3.0, grown(3, 4))]
    assert last_hits([*calls, Call(1, 4.0, grown(1, 4))], 12) == 4
    assert last_hits([*calls, Call(2, 4.0, grown(2, 4))], 12) == 0


def test_a_finished_turn_leaves_before_an_older_tool_call() -> None:
    calls = [Call(1, 0.0, grown(1, 4)), Call(2, 1.0, grown(2, 4), STOP), Call(3, 2.0, grown(3, 4))]
    assert last_hits([*calls, Call(1, 3.0, grown(1, 4))], 8) == 4
    assert last_hits([*calls, Call(2, 3.0, grown(2, 4))], 8) == 0


sessions = st.sampled_from([-1, 0, 1, 2, SESSIONS, SESSIONS + 1])  # some share a slot
calls_of_sessions = st.lists(
    st.tuples(
        sessions,
        st.floats(0.0, 500.0, allow_nan=False),
        st.lists(st.integers(0, 2), min_size=1, max_size=7).map(tuple),
        st.integers(-1, 3),
    ),
    min_size=1,
    max_size=60,
)


@given(calls_of_sessions, st.integers(1, 12))
def test_compiled_and_plain_evict_the_same_blocks(
    drawn: list[tuple[int, float, tuple[int, ...], int]], size: int
) -> None:
    now, calls = 0.0, []
    for session, gap, blocks, finish in drawn:
        now += gap
        calls.append(Call(session, now, tuple(3 * place + block for place, block in enumerate(blocks)), finish))
    trace = trace_of(calls)
    plain = ReferenceReplay(spec_of(size), trace).run().per_request_hit_blocks
    assert np.array_equal(_hits(trace, size), plain)


def test_on_recorded_agent_sessions_it_takes_at_least_a_quarter_of_the_headroom() -> None:
    file = REAL_DATA / "traces" / "weka_claude_code.jsonl.gz"
    if not file.exists():
        pytest.skip(f"no {file.name} in data/traces; run: make data")
    trace = load_trace(file, options={"max_sessions": 40, "sessions_at_once": 20})
    for capacity in (10_000, 20_000):
        lru, ours = simulate(trace, capacity=capacity), simulate(trace, capacity=capacity, evict="session_pace")
        best = clairvoyant(trace, capacity=capacity).hit_blocks
        assert best is not None
        assert ours.hit_blocks - lru.hit_blocks >= (best - lru.hit_blocks) / 4
