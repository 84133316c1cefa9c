"""Ours learns from returns alone: it keeps the kind of request that comes back, and is LRU while it knows nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scripts.data.folder import REAL_DATA

from semantic_kv.bound import clairvoyant
from semantic_kv.cache.reference import ReferenceReplay
from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.spec import CacheSpec, cache_spec
from semantic_kv.policy.evict.return_time import POLICY
from semantic_kv.policy.registry import merged_options
from semantic_kv.policy.structure.ages import AGE_STARTS, AGES, age_bucket
from semantic_kv.policy.structure.return_model import ROWS, make_return_model, refresh_densities
from semantic_kv.simulate import simulate
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace
from sembase.trace.load import load_trace


def spec_of(capacity: int, **options: float) -> CacheSpec:
    return replace(cache_spec(capacity=capacity), evict=POLICY, evict_options=merged_options(POLICY, options))


def tree_trace(rows: list[list[int]]) -> BlockTrace:
    interner, nodes, offsets = TreeInterner(), list[int](), [0]
    for row in rows:
        nodes += interner.add(-1, np.array(row, np.int64), np.ones(len(row), np.int32)).tolist()
        offsets.append(len(nodes))
    return block_trace("rows", np.array(offsets, np.int64), np.array(nodes, np.int32), interner)


def two_kinds(pairs: int) -> BlockTrace:
    """Requests of three blocks return once, about nine requests later; requests of seven blocks never do."""
    rows: list[list[int]] = []
    for number in range(pairs):
        rows.append([10 * number + position for position in range(3)])
        rows.append([1_000_000 + 10 * number + position for position in range(7)])
        if number >= 3:
            rows.append([10 * (number - 3) + position for position in range(3)])
    return tree_trace(rows)


def test_it_keeps_the_kind_of_request_that_returns() -> None:
    trace = two_kinds(150)
    lru = simulate(trace, capacity=20, reference=True)
    ours = ReferenceReplay(spec_of(20, learn_first=0.0), trace).run()
    returning = 3 * 147
    assert lru.hit_blocks < 0.1 * returning
    assert ours.hit_blocks > 0.6 * returning


def test_it_is_lru_while_nothing_came_back() -> None:
    trace = tree_trace([[number, number + 100] for number in range(0, 80, 2)])
    ours, lru = ReferenceReplay(spec_of(6, learn_first=0.0), trace), ReferenceReplay(cache_spec(capacity=6), trace)
    ours.run()
    lru.run()
    assert ours.journal == lru.journal


def test_density_is_the_best_stopping_point() -> None:
    """Nothing returns before age 3, everything then: the sooner the block is there, the denser the wait."""
    model = make_return_model()
    model.waited[0, :4] = 1e9
    model.returned[0, 3] = 1e9
    refresh_densities(model, np.zeros((ROWS, AGES)), 100.0, 1.0)
    found = model.density[0, :5]
    assert found[:4] == pytest.approx([1 / (1 + 1 + 1 + 1), 1 / 3, 1 / 2, 1.0], rel=0.35)
    assert list(found[:4]) == sorted(found[:4])
    assert found[4] == 0.0


@pytest.mark.parametrize(("waited", "bucket"), [(0, 0), (1, 0), (2, 1), (5, 3), (6, 4), (65_536, 31), (10**9, 31)])
def test_ages_are_half_octaves(waited: int, bucket: int) -> None:
    assert age_bucket(waited) == bucket
    assert AGE_STARTS[bucket] <= max(1, waited)


@pytest.mark.shared_data
def test_a_fifth_of_the_mooncake_headroom_is_taken() -> None:
    path = REAL_DATA / "traces" / "mooncake_conversation_trace.jsonl.gz"
    if not path.exists():
        pytest.skip("the traces are not beside this clone")
    trace = load_trace(path)
    lru, most = simulate(trace, capacity=5_000).hit_blocks, clairvoyant(trace, capacity=5_000).hit_blocks
    compiled = CompiledReplay(spec_of(5_000))
    compiled.feed(trace)
    assert most is not None
    assert lru / trace.reference_count == pytest.approx(0.1118, abs=0.002)
    assert (compiled.result().hit_blocks - lru) / (most - lru) > 0.2
