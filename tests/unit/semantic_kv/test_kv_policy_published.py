"""Policies against figures worked out by hand from their published definitions."""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np
import pytest
from numpy.typing import NDArray

from semantic_kv.cache.reference import ReferenceReplay
from semantic_kv.cache.spec import CacheSpec, cache_spec
from semantic_kv.policy.interface import EvictionPolicy
from semantic_kv.policy.registry import merged_options
from sembase.labels import label_index
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace

Block = tuple[int, str, int]  # content, label, tokens


def set_trace(rows: list[list[Block]], at_ms: list[float] | None = None) -> BlockTrace:
    """Block-set requests of labelled blocks; a content keeps the label and tokens it was first given."""
    interner, nodes, offsets = TreeInterner(), list[int](), [0]
    for row in rows:
        for content, label, tokens in row:
            labels = np.array([label_index(label)], np.uint8)
            nodes += _added(interner, content, tokens, labels)
        offsets.append(len(nodes))
    arrivals = np.array(at_ms if at_ms is not None else range(len(rows)), np.float64)
    whole = block_trace(
        "by hand", np.array(offsets, np.int64), np.array(nodes, np.int32), interner, arrival_ms=arrivals
    )
    return whole.as_block_set()


def _added(interner: TreeInterner, content: int, tokens: int, labels: NDArray[np.uint8]) -> list[int]:
    added = interner.add(-1, np.array([content], np.int64), np.array([tokens], np.int32), labels)
    return [int(node) for node in added]


def spec_for(evict: str, capacity: int, admit: str = "always", **options: float) -> CacheSpec:
    policy: EvictionPolicy = import_module(f"semantic_kv.policy.evict.{evict}").POLICY
    plain = cache_spec(capacity=capacity, admit=admit, model="block_set", unit="tokens")
    return CacheSpec(
        admit=plain.admit,
        evict=policy,
        capacity=capacity,
        model="block_set",
        unit="tokens",
        admit_options=plain.admit_options,
        evict_options=merged_options(policy, options),
        seed=0,
    )


def evicted(spec: CacheSpec, trace: BlockTrace) -> list[int]:
    replay = ReferenceReplay(spec, trace)
    replay.run()
    return [~entry for entry in replay.journal if entry < 0]


def test_static_semantic_score_is_the_published_formula() -> None:
    trace = set_trace([[(0, "system", 100)], [(0, "system", 100)], [(0, "system", 100)], [(1, "user", 50)]])
    replay = ReferenceReplay(spec_for("static_semantic", 1000), trace)
    replay.run()
    assert replay.evict.worth(0) == pytest.approx(2.4 * math.log(4) * (3 * 8.0) / 10)
    assert replay.evict.worth(1) == pytest.approx(0.7 * 1.0 * 4.0 / math.sqrt(50))


def test_static_semantic_incoming_block_claims_a_millisecond_a_token() -> None:
    """The original's unit error: a block not resident is worth 12.5 times the same block resident."""
    trace = set_trace([[(0, "code", 100)], [(1, "code", 100)]])
    replay = ReferenceReplay(spec_for("static_semantic", 100), trace)
    replay.run()
    assert replay.evict.worth(0) == pytest.approx(12.5 * replay.evict.worth(1))


def test_static_semantic_keeps_the_system_prompt_where_lru_does_not() -> None:
    trace = set_trace([[(0, "system", 100)], [(1, "user", 100)], [(2, "user", 100)]])
    assert evicted(spec_for("static_semantic", 200), trace) == [1]
    assert evicted(spec_for("lru", 200), trace) == [0]


def test_size_aware_lru_evicts_a_large_recent_block_before_a_small_old_one() -> None:
    rows = [[(0, "user", 1)], [(1, "user", 100)], [(2, "user", 100)]]
    trace = set_trace(rows, at_ms=[1000.0, 2000.0, 3000.0])
    assert evicted(spec_for("size_aware_lru", 150), trace) == [1]
    assert evicted(spec_for("lru", 150), trace)[0] == 0


def test_adaptive_refuses_user_blocks_when_full_and_only_then() -> None:
    rows = [[(0, "user", 100)], [(1, "code", 100)], [(2, "user", 100)], [(3, "code", 100)]]
    replay = ReferenceReplay(spec_for("adaptive_semantic", 200, admit="score"), set_trace(rows))
    run = replay.run()
    assert [entry for entry in replay.journal if entry >= 0] == [0, 1, 3]
    assert run.refused == 1


def test_adaptive_weights_rise_with_regret_and_hits_and_decay_when_never_hit() -> None:
    code, system = label_index("code"), label_index("system")
    rows = [[(0, "code", 100)], [(1, "code", 100)], [(0, "code", 100)], [(0, "code", 100)]]
    run = ReferenceReplay(spec_for("adaptive_semantic", 100), set_trace(rows)).run()
    assert run.weights_over_time is not None
    weights = run.weights_over_time[:, code]
    assert weights == pytest.approx([1.6, 1.6, 1.6 + 0.18 + 0.1, 1.6 + 0.28 + 0.01 + 0.025])
    late = set_trace([[(0, "system", 10)], [(1, "code", 10)]], at_ms=[0.0, 70_000.0])
    aged = ReferenceReplay(spec_for("adaptive_semantic", 100), late).run().weights_over_time
    assert aged is not None
    assert aged[-1, system] == pytest.approx(2.4 * 0.995)
