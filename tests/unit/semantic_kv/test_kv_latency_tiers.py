"""Tiers: what is conserved, what equals one big LRU, and what a hit below the first tier costs."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semantic_kv.latency import LatencyModel, Tier, cheaper_to_load, load_ms, tiered_replay
from semantic_kv.simulate import simulate
from sembase.errors import ContractError
from sembase.trace.columns import BlockTrace, TreeInterner, block_trace

_paths = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=25)
_capacities = st.lists(st.integers(1, 8), min_size=1, max_size=3)


def _trace(paths: list[list[int]]) -> BlockTrace:
    interner = TreeInterner()
    rows = [interner.add(0, np.array(path), 16) for path in paths]
    offsets = np.concatenate(([0], np.cumsum([len(path) for path in paths]))).astype(np.int64)
    return block_trace("tiers", offsets, np.concatenate(rows), interner, block_tokens=16)


def _tiers(capacities: list[int]) -> list[Tier]:
    return [Tier(f"tier {level}", capacity) for level, capacity in enumerate(capacities)]


@given(_paths, _capacities)
def test_every_block_is_accounted_for(paths: list[list[int]], capacities: list[int]) -> None:
    replay = tiered_replay(_trace(paths), _tiers(capacities))

    assert replay.computed + int(replay.hit_blocks.sum()) == replay.references
    assert replay.computed == replay.admitted + replay.refused
    assert replay.admitted == sum(replay.resident) + replay.dropped
    assert replay.resident[0] == replay.admitted + sum(replay.read) - replay.demoted[0]
    for level in range(1, len(capacities)):
        assert replay.resident[level] == replay.demoted[level - 1] - replay.read[level] - replay.demoted[level]
    assert all(held <= room for held, room in zip(replay.resident, capacities, strict=True))


@given(_paths, _capacities)
def test_it_decides_as_a_plain_list_of_lists(paths: list[list[int]], capacities: list[int]) -> None:
    trace = _trace(paths)

    assert tiered_replay(trace, _tiers(capacities)).hit_blocks.tolist() == _plain(trace, capacities)


def _plain(trace: BlockTrace, capacities: list[int]) -> list[list[int]]:
    tiers: list[OrderedDict[int, None]] = [OrderedDict() for _ in capacities]
    answer = []
    for request in range(trace.request_count):
        row = trace.nodes[trace.offsets[request] : trace.offsets[request + 1]].tolist()
        found = [next((level for level, tier in enumerate(tiers) if node in tier), -1) for node in row]
        hits = found[: found.index(-1)] if -1 in found else found
        answer.append([hits.count(level) for level in range(len(tiers))])
        for place in reversed(range(len(row))):
            level = 0 if place < capacities[0] else found[place]
            for tier in tiers:
                if level >= 0:
                    tier.pop(row[place], None)
            if level >= 0:
                tiers[level][row[place]] = None
        for level, tier in enumerate(tiers):
            while len(tier) > capacities[level]:
                node, _ = tier.popitem(last=False)
                if level + 1 < len(tiers):
                    tiers[level + 1][node] = None
    return answer


@given(_paths, st.lists(st.integers(5, 9), min_size=2, max_size=3))
def test_tiers_are_one_lru_cut_into_levels(paths: list[list[int]], capacities: list[int]) -> None:
    """True where every request fits into the first tier: up to each level they hit what one LRU of that size hits."""
    trace = _trace(paths)
    hits = tiered_replay(trace, _tiers(capacities)).hit_blocks
    for level in range(len(capacities)):
        whole = simulate(trace, capacity=sum(capacities[: level + 1]))
        assert hits[:, : level + 1].sum(axis=1).tolist() == whole.per_request_hit_blocks.tolist()


@given(_paths, st.integers(5, 9), st.integers(1, 6))
def test_a_larger_last_tier_never_loses_a_hit_where_requests_fit(
    paths: list[list[int]], first: int, second: int
) -> None:
    trace = _trace(paths)
    small = tiered_replay(trace, _tiers([first, second])).hit_blocks.sum(axis=1)
    large = tiered_replay(trace, _tiers([first, second + 2])).hit_blocks.sum(axis=1)

    assert (large >= small).all()


def test_hit_tokens_are_those_of_the_first_blocks() -> None:
    trace = _trace([[0, 1, 2], [0, 1], [2]])
    replay = tiered_replay(trace, _tiers([4]))

    assert replay.hit_tokens(trace).tolist() == [0, 32, 0]


def test_a_read_pays_latency_once_and_its_bytes() -> None:
    gib = 1 << 30
    tiers = [Tier("gpu", 8), Tier("cpu", 8, read_gib_per_s=20.0, latency_ms=0.5), Tier("disk", 8, 2.0, 4.0)]
    hits = np.array([[3, 0, 0], [1, 2, 0], [0, 1, 4]], dtype=np.int32)

    cost = load_ms(hits, tiers, block_bytes=gib // 100)

    assert cost == pytest.approx([0.0, 0.5 + 2 * 0.5, 0.5 + 0.5 + 4.0 + 4 * 5.0])


def test_loading_is_cheaper_until_it_is_not() -> None:
    model = LatencyModel(base_ms=50.0, ms_per_uncached_token=0.1, source="given")
    fast, slow = Tier("cpu", 1, 20.0), Tier("remote", 1, 0.1)

    assert cheaper_to_load(fast, 16, 2 << 20, model)
    assert not cheaper_to_load(slow, 16, 2 << 20, model)
    assert cheaper_to_load(slow, 16, 2 << 20, LatencyModel(0.0, 2.0, source="given"))


def test_nonsense_is_refused() -> None:
    trace = _trace([[1]])
    with pytest.raises(ContractError, match="1 to 8 tiers"):
        tiered_replay(trace, [])
    with pytest.raises(ContractError, match="same name"):
        tiered_replay(trace, [Tier("a", 1), Tier("a", 1)])
    with pytest.raises(ContractError, match="no parents"):
        tiered_replay(trace.as_block_set(), [Tier("a", 1)])
    with pytest.raises(ContractError, match="greater than 0"):
        Tier("a", 1, read_gib_per_s=0.0)
