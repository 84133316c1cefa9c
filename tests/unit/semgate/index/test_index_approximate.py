"""The index from routing history: ages, capacity, and least recent first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import Clock

from sembase.errors import ConfigurationError
from semgate.index.approximate import TICK_SECONDS, ApproximateIndex

TTL_SECONDS = 5.0


def keys_of(*numbers: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(numbers, np.uint64)


def new_index(bound: int = 16) -> tuple[ApproximateIndex, Clock]:
    clock = Clock(1_000.0)
    index = ApproximateIndex(bound, TTL_SECONDS, clock=clock)
    index.add_slot()
    index.add_slot()
    return index, clock


def test_a_request_is_believed_to_be_where_it_went() -> None:
    index, _ = new_index()
    index.routed(1, keys_of(1, 2, 3))
    assert index.longest(keys_of(1, 2, 9)).tolist() == [0, 2]


def test_blocks_are_forgotten_a_while_after_their_last_request() -> None:
    index, clock = new_index()
    index.routed(0, keys_of(1, 2, 3))
    clock.now += 3
    index.routed(0, keys_of(1, 2))
    clock.now += 3
    assert index.longest(keys_of(1, 2, 3)).tolist() == [2, 0]
    assert index.blocks(0) == 2
    clock.now += 3
    assert index.blocks(0) == 0
    assert index.expired_blocks == 3


def test_a_full_replica_forgets_leaves_of_the_least_recent_request_first() -> None:
    index, _ = new_index(16)
    index.routed(0, keys_of(*range(1, 11)))
    index.routed(0, keys_of(*range(101, 111)))
    assert index.blocks(0) == 16
    assert index.longest(keys_of(*range(1, 11))).tolist() == [6, 0]
    assert index.longest(keys_of(*range(101, 111))).tolist() == [10, 0]
    assert index.evicted_blocks == 4


def test_a_request_longer_than_a_replica_keeps_its_beginning() -> None:
    index, _ = new_index(16)
    index.routed(0, keys_of(*range(1, 101)))
    assert index.longest(keys_of(*range(1, 101))).tolist() == [16, 0]


def test_clearing_and_removing() -> None:
    index, _ = new_index()
    index.routed(0, keys_of(1))
    index.routed(1, keys_of(1))
    index.cleared(0)
    assert index.longest(keys_of(1)).tolist() == [0, 1]
    index.remove_slot(1)
    assert index.distinct_blocks() == 0
    assert index.add_slot() == 1


def test_a_time_to_live_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ttl_seconds is 0"):
        ApproximateIndex(100, 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(1, 12), st.integers(0, 30), st.integers(1, 12)),
        min_size=1,
        max_size=30,
    )
)
def test_any_history_gives_what_a_dictionary_by_age_gives(history: list[tuple[int, int, int, int]]) -> None:
    index, clock = new_index()
    plain: list[dict[int, int]] = [{}, {}]  # per slot: key -> tick of its last request, least recent first
    tick = 0
    for slot, count, later_ticks, first in history:
        tick += later_ticks
        clock.now = 1_000.0 + (tick + 0.5) * TICK_SECONDS
        for held in plain:
            for key in [key for key, seen in held.items() if seen < tick - TTL_SECONDS / TICK_SECONDS]:
                del held[key]
        keys = range(first, first + count)
        index.routed(slot, keys_of(*keys))
        for key in reversed(keys):
            if plain[slot].pop(key, None) is None and len(plain[slot]) == 16:
                del plain[slot][next(iter(plain[slot]))]
            plain[slot][key] = tick
        for key in range(1, 25):
            assert index.longest(keys_of(key)).tolist() == [int(key in held) for held in plain]
