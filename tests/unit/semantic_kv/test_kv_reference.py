"""The plain-Python simulator: hand-computed cases, and policies that exist in plain Python only."""

from __future__ import annotations

import numpy as np
import pytest

from semantic_kv.cache.reference import ReferenceReplay
from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.spec import cache_spec
from semantic_kv.policy.interface import ReferenceAdmission, ReferenceEviction
from semantic_kv.policy.registry import ADMISSION, EVICTION
from semantic_kv.simulate import simulate
from sembase.errors import ConfigurationError
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace


def build(requests: list[list[int]]) -> BlockTrace:
    interner = TreeInterner()
    rows = [interner.add(0, np.array(keys, dtype=np.int64), 1) for keys in requests]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return block_trace("t", offsets, np.concatenate(rows), interner)


class LargestNodeFirst(ReferenceEviction):
    def victim(self, incoming: int) -> int:
        return max(self.view.evictable(), default=-1)


class OnlyEvenNodes(ReferenceAdmission):
    def admits(self, node: int, victim: int, worth: float, victim_worth: float) -> bool:
        return node % 2 == 0


class Careless(ReferenceEviction):
    def victim(self, incoming: int) -> int:
        return 0


@pytest.fixture
def plain_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered for one test only: other tests list the registries."""
    monkeypatch.setitem(EVICTION._loaded, "test_largest_first", LargestNodeFirst)
    monkeypatch.setitem(EVICTION._loaded, "test_careless", Careless)
    monkeypatch.setitem(ADMISSION._loaded, "test_even_only", OnlyEvenNodes)


def test_leaves_go_before_inner_blocks_by_hand() -> None:
    # Nodes: 0-1-2 of request 0, 3 below 1 of request 1. At capacity 4 request 2 (node 4) costs the older leaf, 2.
    replay = ReferenceReplay(cache_spec(capacity=4), build([[1, 2, 3], [1, 2, 4], [5]]))
    run = replay.run()
    assert replay.journal == [0, 1, 2, 3, ~2, 4]
    assert run.per_request_hit_blocks.tolist() == [0, 2, 0]


def test_fifo_lru_and_lfu_differ_where_they_should() -> None:
    requests = [[1], [1], [2], [3], [1], [4]]
    gone = {}
    for evict in ("fifo", "lru", "lfu"):
        replay = ReferenceReplay(cache_spec(capacity=3, evict=evict), build(requests))
        replay.run()
        gone[evict] = [~entry for entry in replay.journal if entry < 0]
    assert gone == {"fifo": [0], "lru": [1], "lfu": [1]}
    replay = ReferenceReplay(cache_spec(capacity=2, evict="lfu"), build([[1], [1], [2], [3], [2]]))
    replay.run()
    assert [~entry for entry in replay.journal if entry < 0] == [1, 2]  # the 2 of the end has been used before


@pytest.mark.usefixtures("plain_policies")
def test_a_policy_of_plain_python_runs_through_the_front_door() -> None:
    run = simulate(build([[1], [2], [3], [1]]), capacity=2, evict="test_largest_first")
    assert (run.evict, run.evicted, run.hit_blocks) == ("test_largest_first", 1, 1)
    refusing = simulate(build([[1], [2], [2]]), capacity=9, admit="test_even_only")
    assert (refusing.admitted, refusing.refused) == (1, 2)


@pytest.mark.usefixtures("plain_policies")
def test_the_compiled_core_says_that_it_cannot_run_such_a_policy() -> None:
    with pytest.raises(ConfigurationError, match="plain Python only"):
        CompiledReplay(cache_spec(capacity=2, evict="test_largest_first"))


@pytest.mark.usefixtures("plain_policies")
def test_a_policy_that_names_a_pinned_block_is_caught() -> None:
    with pytest.raises(AssertionError, match="pinned, inner or absent"):
        simulate(build([[1, 2, 3]]), capacity=2, evict="test_careless")
