"""The arena's books: donors in whole pages, nothing shared, everything returned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from semblend.kv.arena import Arena, arena_bytes
from semblend.kv.donor_store import KVShape, StoreError

pytestmark = pytest.mark.models
SHAPE = KVShape(2, 1, 4, torch.bfloat16)


def arena(tokens: int, page_tokens: int = 16) -> Arena:
    budget = tokens * SHAPE.bytes_per_token
    memory = torch.zeros(arena_bytes(SHAPE, budget, page_tokens), dtype=torch.uint8)
    return Arena(memory, SHAPE, budget, page_tokens)


def keep(store: Arena, donor_id: str, tokens: int) -> None:
    store.begin(donor_id, tokens)
    store.wrote(donor_id, 0, tokens)
    assert store.commit(donor_id)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 90)), max_size=40))
def test_donors_never_share_a_slot_and_all_room_comes_back(operations: list[tuple[str, int]]) -> None:
    store = arena(256, page_tokens=4)
    held: dict[str, int] = {}
    for donor_id, tokens in operations:
        if not tokens:
            assert store.drop(donor_id) == (held.pop(donor_id, None) is not None)
            continue
        try:
            keep(store, donor_id, tokens)
            held[donor_id] = tokens
        except StoreError:
            assert sum(held.values()) - held.get(donor_id, 0) + tokens > 256 - 6 * 4, "refused although it fits"
        slots = [store.slots(other, 0, length) for other, length in held.items()]
        joined = np.concatenate([np.empty(0, np.int64), *slots])
        assert len(set(joined.tolist())) == len(joined)
        assert store.bytes_held == sum(held.values()) * SHAPE.bytes_per_token
    for donor_id in held:
        store.drop(donor_id)
    keep(store, "all", 256)


def test_donors_of_256_tokens_fill_the_budget_whatever_they_round_up_to() -> None:
    store = arena(257 * 8)
    for number in range(8):
        keep(store, f"d{number}", 257)
    with pytest.raises(StoreError, match="ceiling"):
        store.begin("more", 1)


def test_only_complete_donors_are_read_and_only_incomplete_ones_written() -> None:
    store = arena(64)
    store.begin("d", 20)
    with pytest.raises(StoreError, match="not committed"):
        store.slots("d", 0, 20)
    store.wrote("d", 0, 16)
    assert not store.commit("d")
    with pytest.raises(StoreError, match="slice at 0, but 16"):
        store.wrote("d", 0, 4)
    store.wrote("d", 16, 4)
    assert store.commit("d")
    assert store.contains("d")
    with pytest.raises(StoreError, match="committed already"):
        store.slots("d", 0, 20, to_write=True)
    with pytest.raises(StoreError, match="outside its 20 tokens"):
        store.slots("d", 10, 11)


def test_a_donor_dropped_while_it_is_written_is_not_committed() -> None:
    store = arena(64)
    store.begin("d", 20)
    store.wrote("d", 0, 20)
    store.drop("d")
    assert not store.commit("d")
    assert not store.contains("d")


def test_entries_without_values_take_one_side() -> None:
    shape = KVShape(2, 1, 6, torch.bfloat16, has_values=False)
    budget = 64 * shape.bytes_per_token
    store = Arena(torch.zeros(arena_bytes(shape, budget), dtype=torch.uint8), shape, budget)
    assert not store.pages.values
    assert store.pages.keys[0].shape[1:] == (16, 1, 6)
