"""What only the store in host memory does: it hands out views, and notices a donor that lost its end."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from semblend.kv.donor_store import KVShape, StoreError, keys_and_values
from semblend.kv.host_store import HostStore

pytestmark = pytest.mark.models

LAYERS, HEADS, DIM = 2, 1, 4


@pytest.fixture
def store() -> HostStore:
    made = HostStore(KVShape(LAYERS, HEADS, DIM, torch.bfloat16))
    made.begin("a", 8)
    rows = torch.ones((8, HEADS, DIM), dtype=torch.bfloat16)
    for layer in range(LAYERS):
        made.write("a", layer, 0, rows, rows)
    made.commit("a")
    return made


def test_reading_copies_nothing(store: HostStore) -> None:
    assert store.read("a", 4, 3).untyped_storage().data_ptr() == store.read("a", 0, 8).untyped_storage().data_ptr()


def test_a_truncated_donor_is_refused(store: HostStore) -> None:
    entry = store._entries["a"]
    entry.kv = entry.kv[:, :, :6]
    with pytest.raises(StoreError, match="truncated: 6 of 8"):
        store.read("a", 0, 2)
    assert store.drop("a")
    assert store.bytes_held == 0


def test_one_entry_per_token_takes_half_the_memory() -> None:
    shape = KVShape(LAYERS, HEADS, DIM, torch.bfloat16, has_values=False)
    store = HostStore(shape)
    assert store.bytes_per_token == KVShape(LAYERS, HEADS, DIM, torch.bfloat16).bytes_per_token // 2
    store.begin("a", 3)
    entries = torch.arange(3 * DIM, dtype=torch.bfloat16).view(3, HEADS, DIM)
    with pytest.raises(StoreError, match="V"):
        store.write("a", 0, 0, entries, entries)
    for layer in range(LAYERS):
        store.write("a", layer, 0, entries, entries[..., :0])
    store.commit("a")
    keys, values = keys_and_values(store.read("a", 1, 2))
    assert torch.equal(keys[1], entries[1:])
    assert values.shape == (LAYERS, 2, HEADS, 0)
