"""Reuse beyond the prefix, an axis of the simulator: off, it changes nothing; repaired, a session is as if unbroken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.semantic_kv.test_kv_policy_parity import random_tree_trace

from semantic_kv.cache import blending
from semantic_kv.cache.spec import cache_spec
from semantic_kv.experiment.config_file import parse_config
from semantic_kv.policy.reuse import MAX_HELD_FRACTION, REUSE, Reuse, ReuseName
from semantic_kv.simulate import simulate
from sembase.errors import ConfigurationError
from sembase.finish import ABORT, STOP
from sembase.latency import LatencyModel
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace

TOKENS = 64
FAST = LatencyModel(base_ms=0.0, ms_per_uncached_token=0.001)
Keys = list[int]


def trace_of(
    rows: list[Keys], *, gap_ms: float = 1e6, sessions: list[int] | None = None, finish: int = STOP, output: int = 2
) -> BlockTrace:
    """Blocks with equal keys have equal content, whatever is before them."""
    interner, nodes, offsets = TreeInterner(), list[int](), [0]
    for row in rows:
        nodes += interner.add(-1, np.array(row, np.int64), np.full(len(row), TOKENS, np.int32)).tolist()
        offsets.append(len(nodes))
    count = len(rows)
    return block_trace(
        "rows",
        np.array(offsets, np.int64),
        np.array(nodes, np.int32),
        interner,
        block_tokens=TOKENS,
        arrival_ms=np.arange(count) * gap_ms,
        session=np.array(sessions or [0] * count),
        finish=np.full(count, finish),
        output_tokens=np.full(count, output),
    )


def session(turns: int, broken_at: int | None, head: int = 1) -> list[Keys]:
    """Every turn adds two blocks; from ``broken_at`` on the first block is another one."""
    rows = []
    for turn in range(turns):
        first = head if broken_at is None or turn < broken_at else head + 1_000
        rows.append([first, *range(head + 1, head + 8 + 2 * turn)])
    return rows


def reuse(name: ReuseName, latency: LatencyModel = FAST, min_inexact_tokens: int = 0) -> Reuse:
    return Reuse(name, latency, min_inexact_tokens=min_inexact_tokens, boundary_recompute_tokens=0)


@pytest.mark.parametrize("seed", range(3))
def test_without_equal_content_every_arm_is_the_prefix_cache(seed: int) -> None:
    trace = random_tree_trace(seed, requests=80)
    today = simulate(trace, capacity=20, reference=True)
    for name in REUSE:
        arm = simulate(trace, capacity=20, reuse=reuse(name), reference=True)
        assert arm.per_request_hit_tokens.tolist() == today.per_request_hit_tokens.tolist()
        assert (arm.admitted, arm.refused, arm.evicted) == (today.admitted, today.refused, today.evicted)
        assert arm.blended.requests == arm.blended.repaired_tokens == 0


@settings(deadline=None, max_examples=30)
@given(turns=st.integers(3, 9), broken_at=st.integers(1, 7), name=st.sampled_from(["blend_idle", "blend_likely"]))
def test_a_repaired_session_continues_as_if_nothing_had_broken(turns: int, broken_at: int, name: ReuseName) -> None:
    broken_at = min(broken_at, turns - 2)
    whole = simulate(trace_of(session(turns, None)), capacity=1_000, reference=True)
    arm = simulate(trace_of(session(turns, broken_at)), capacity=1_000, reuse=reuse(name), reference=True)
    later = slice(broken_at + 1, None)
    assert arm.per_request_hit_tokens[later].tolist() == whole.per_request_hit_tokens[later].tolist()
    assert arm.blended.requests == 1
    assert arm.blended.repaired_tokens == TOKENS * len(session(turns, None)[broken_at])


def test_without_repair_every_later_turn_blends_again_on_the_old_donor() -> None:
    trace = trace_of(session(6, broken_at=2))
    arm = simulate(trace, capacity=1_000, reuse=reuse("blend"), reference=True)
    donor = len(session(6, None)[1])  # the last prompt before the break
    assert arm.per_request_hit_tokens[2:].tolist() == [0, 0, 0, 0]
    assert arm.per_request_reused_tokens[2:].tolist() == [TOKENS * (donor - 1)] * 4
    assert arm.blended.requests == 4


def test_a_repair_that_had_half_the_time_gives_half_the_hits() -> None:
    rows = session(4, broken_at=2)
    needed = len(rows[2]) * TOKENS * 1.0
    trace = trace_of(rows)
    arrival = np.array([0.0, 1e6, 2e6, 0.0])
    slow = LatencyModel(base_ms=0.0, ms_per_uncached_token=1.0)
    served = (len(rows[2]) - (len(rows[1]) - 1)) * TOKENS * 1.0  # the broken turn's own prefill
    arrival[3] = 2e6 + served + needed / 2
    arm = simulate(replace(trace, arrival_ms=arrival), capacity=1_000, reuse=reuse("blend_idle", slow), reference=True)
    assert arm.per_request_hit_tokens[3] == len(rows[2]) // 2 * TOKENS
    assert arm.blended.repair_ms == pytest.approx(needed / 2)


def test_only_likely_repairs_in_busy_steps_and_only_sessions_that_return() -> None:
    rows = session(4, broken_at=2)
    decoding = LatencyModel(base_ms=0.0, ms_per_uncached_token=0.001, step_ms=10.0)
    busy = [*rows[:3], [7_000_000], rows[3]]
    sessions = [0, 0, 0, 1, 0]
    trace = trace_of(busy, sessions=sessions)
    # The other session decodes from before the broken turn ends until the next turn.
    arrival = np.array([0.0, 1e6, 2e6, 2e6, 2.02e6])
    trace = replace(trace, arrival_ms=arrival, output_tokens=np.array([2, 2, 2, 100_000, 2], np.int32))
    hits = {
        name: int(
            simulate(trace, capacity=1_000, reuse=reuse(name, decoding), reference=True).per_request_hit_tokens[4]
        )
        for name in ("blend_idle", "blend_likely")
    }
    assert hits == {"blend_idle": 0, "blend_likely": TOKENS * len(rows[2])}
    aborted = simulate(trace_of(rows, finish=ABORT), capacity=1_000, reuse=reuse("blend_likely"), reference=True)
    assert aborted.blended.requests > 1
    assert aborted.blended.repaired_tokens == 0


def test_repairs_give_their_blocks_back_when_a_request_lacks_some() -> None:
    rows = [*session(3, broken_at=2), list(range(9_000, 9_024))]
    capacity = int(len(rows[2]) / MAX_HELD_FRACTION)
    trace = trace_of(rows, gap_ms=1.0)  # no time to repair
    slow = LatencyModel(base_ms=0.0, ms_per_uncached_token=100.0)
    trace = replace(trace, arrival_ms=np.array([0.0, 1e7, 2e7, 2e7 + 1]))
    arm = simulate(trace, capacity=capacity, reuse=reuse("blend_idle", slow), reference=True)
    assert arm.blended.requests == 1
    assert arm.admitted >= len(rows[3])  # the newcomer got all of its blocks
    assert arm.used_over_time[-1, 1] == len(rows[3])


def two_broken_sessions(think_ms: float) -> tuple[BlockTrace, list[Keys]]:
    """Both break at the same time, the second one right after the first; both return after ``think_ms``."""
    first, second = session(3, broken_at=1), session(3, broken_at=1, head=50_000)
    rows = [first[0], second[0], first[1], second[1], first[2], second[2]]
    trace = trace_of(rows, sessions=[0, 1, 0, 1, 0, 1])
    back = 2e7 + 2 * 3 * TOKENS + think_ms  # each broken turn computes three blocks
    return replace(trace, arrival_ms=np.array([0.0, 1e7, 2e7, 2e7, back, back])), rows


def test_the_newest_repair_is_computed_first() -> None:
    slow = LatencyModel(base_ms=0.0, ms_per_uncached_token=1.0)
    trace, rows = two_broken_sessions(think_ms=10.0 * TOKENS)  # for one of the two
    arm = simulate(trace, capacity=1_000, reuse=reuse("blend_idle", slow), reference=True)
    assert arm.per_request_hit_tokens[4:].tolist() == [0, TOKENS * len(rows[3])]


def test_the_oldest_repair_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, rows = two_broken_sessions(think_ms=1e7)
    both = simulate(trace, capacity=1_000, reuse=reuse("blend_idle"), reference=True)
    assert both.per_request_hit_tokens[4:].tolist() == [TOKENS * len(rows[2]), TOKENS * len(rows[3])]
    monkeypatch.setattr(blending, "MAX_JOBS", 1)
    one = simulate(trace, capacity=1_000, reuse=reuse("blend_idle"), reference=True)
    assert one.per_request_hit_tokens[4:].tolist() == [0, TOKENS * len(rows[3])]


def contents_shuffled(seed: int) -> BlockTrace:
    trace, rng = random_tree_trace(seed, requests=90), np.random.default_rng(seed)
    content = rng.integers(0, max(1, trace.node_count // 3), trace.node_count).astype(np.int32)
    return replace(trace, content=content, output_tokens=rng.integers(-1, 60, trace.request_count).astype(np.int32))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), name=st.sampled_from(REUSE), capacity=st.integers(3, 60))
def test_tokens_are_conserved_and_the_capacity_holds(seed: int, name: ReuseName, capacity: int) -> None:
    trace = contents_shuffled(seed)
    latency = LatencyModel(0.0, 1.0, 0.0, 0.0, 0.0, 2.0, 0.0)
    arm = simulate(trace, capacity=capacity, reuse=reuse(name, latency), reference=True)
    computed = trace.prompt_tokens() - arm.per_request_hit_tokens - arm.per_request_reused_tokens
    hits_all = arm.per_request_hit_blocks == np.diff(trace.offsets)
    assert (computed[~hits_all] > 0).all()
    assert (computed[hits_all] == 0).all()
    assert arm.per_request_reused_tokens.sum() == arm.blended.reused_tokens
    assert (arm.used_over_time[:, 1] >= 0).all()
    assert (arm.used_over_time[:, 1] <= capacity).all()
    blended = arm.per_request_reused_tokens > 0
    missed = trace.prompt_tokens() - arm.per_request_hit_tokens
    assert arm.blended.repaired_tokens <= missed[blended].sum()
    if name in ("prefix", "blend"):
        assert arm.blended.repaired_tokens == 0


def brute_force(rows: list[Keys], name: ReuseName, least: int) -> list[tuple[int, int]]:
    """(hit blocks, reused blocks) by the definitions, with room for everything and time for every repair."""
    cached, ever_exact, donors = set[tuple[int, ...]](), set[tuple[int, ...]](), set[int]()
    found = []
    for row in rows:
        prefixes = [tuple(row[: end + 1]) for end in range(len(row))]
        hits = next((at for at, prefix in enumerate(prefixes) if prefix not in cached), len(row))
        usable = [
            at
            for at in range(hits, len(row) - 1)
            if name != "prefix" and prefixes[at] not in ever_exact and row[at] in donors
        ]
        reused = len(usable) if len(usable) >= max(least, 0.1 * (len(row) - hits)) else 0
        found.append((hits, reused))
        if not reused or name == "blend_idle":
            cached.update(prefixes)
            ever_exact.update(prefixes)
            donors.update(row)
    return found


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=14),
    name=st.sampled_from(["prefix", "blend", "blend_idle"]),
    least=st.integers(0, 3),
)
def test_small_traces_follow_the_definitions(rows: list[Keys], name: ReuseName, least: int) -> None:
    given_ = reuse(name, min_inexact_tokens=least * TOKENS)
    arm = simulate(trace_of(rows), capacity=10_000, reuse=given_, reference=True)
    found = zip(arm.per_request_hit_blocks.tolist(), (arm.per_request_reused_tokens // TOKENS).tolist(), strict=True)
    assert list(found) == brute_force(rows, name, least)


def test_reuse_beyond_the_prefix_needs_a_tree() -> None:
    with pytest.raises(ConfigurationError, match="prefix_tree"):
        cache_spec(capacity=10, model="block_set", reuse=Reuse("blend"))
    study = {
        "experiment": "x",
        "description": "x",
        "source": {"path": "x.jsonl"},
        "unit": "blocks",
        "capacities": [10],
        "policies": [{"evict": "lru", "reuse": "blend_idle"}],
    }
    with pytest.raises(ConfigurationError, match="prefix_tree"):
        parse_config(study, "study")
    choice = parse_config({**study, "models": ["prefix_tree"]}, "study").policies[0]
    assert choice.name == "lru/blend_idle"
