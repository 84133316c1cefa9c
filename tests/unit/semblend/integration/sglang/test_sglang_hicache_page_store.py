"""Laws of the page store: its bound, the order pages leave in, the round trip, and that namespaces never meet."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from semblend.integration.sglang.page_store import PageNamespace, PageStore

BUDGET = 40
NAMESPACE = PageNamespace("model", "float32", "layer_first", 16, 30, 3, 64, 64, (0, 1))

Bytes = NDArray[np.uint8]
operations = st.lists(
    st.tuples(
        st.sampled_from(("put", "get", "leading", "count", "clear")),
        st.sampled_from("ab"),
        st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True),
        st.integers(1, 50),
    ),
    max_size=60,
)


def page(number: int, size: int) -> Bytes:
    return np.full(size, number, np.uint8)


class Plain:
    """The same promises, written down as slowly and as plainly as possible."""

    def __init__(self) -> None:
        self.held: OrderedDict[tuple[str, str], Bytes] = OrderedDict()

    def put(self, key: tuple[str, str], value: Bytes) -> bool:
        if key in self.held:
            self.held.move_to_end(key)
            return True
        if value.nbytes > BUDGET:
            return False
        self.held[key] = value
        while sum(kept.nbytes for kept in self.held.values()) > BUDGET:
            self.held.popitem(last=False)
        return True

    def leading(self, keys: list[tuple[str, str]]) -> list[Bytes]:
        count = next((number for number, key in enumerate(keys) if key not in self.held), len(keys))
        pages = [self.held[key] for key in keys[:count]]
        for key in reversed(keys[:count]):
            self.held.move_to_end(key)
        return pages


@given(operations)
def test_it_does_what_the_plain_one_does_and_never_holds_more_than_its_bound(
    steps: list[tuple[str, str, list[int], int]],
) -> None:
    store: PageStore[Bytes] = PageStore(BUDGET)
    plain = Plain()
    for what, namespace, numbers, size in steps:
        hashes = [str(number) for number in numbers]
        keys = [(namespace, page_hash) for page_hash in hashes]
        if what == "put":
            value = page(numbers[0], size)
            assert store.put(namespace, hashes[0], value) == plain.put(keys[0], value)
        elif what == "get":
            expected = plain.leading(keys[:1])
            assert store.get(namespace, hashes[0]) is (expected[0] if expected else None)
        elif what == "leading":
            found, expected = store.leading(namespace, hashes), plain.leading(keys)
            assert [id(one) for one in found] == [id(one) for one in expected]
        elif what == "count":
            before = list(plain.held)
            assert store.count_leading(namespace, hashes) == len(plain.leading(keys))
            plain.held = OrderedDict((key, plain.held[key]) for key in before)  # asking makes nothing younger
        else:
            store.clear()
            plain.held.clear()
        assert list(store._pages) == list(plain.held), "the same pages, in the same order of leaving"
        assert store.stats().held_bytes == sum(kept.nbytes for kept in plain.held.values()) <= BUDGET
        assert len(store) == store.stats().pages == len(plain.held)


@given(st.binary(min_size=1, max_size=BUDGET), st.text(max_size=8), st.text(max_size=8))
def test_what_goes_in_comes_out_and_only_under_its_own_name(content: bytes, page_hash: str, other: str) -> None:
    store: PageStore[Bytes] = PageStore(BUDGET)
    mine = NAMESPACE.digest()
    assert store.put(mine, page_hash, np.frombuffer(content, np.uint8))
    found = store.get(mine, page_hash)
    assert found is not None
    assert found.tobytes() == content
    assert store.get(replace(NAMESPACE, dtype="float16").digest(), page_hash) is None
    assert (store.get(mine, other) is not None) == (other == page_hash)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "other"),
        ("dtype", "bfloat16"),
        ("layout", "page_first"),
        ("page_tokens", 32),
        ("layers", 31),
        ("heads", 4),
        ("head_dim", 32),
        ("v_head_dim", 32),
        ("ranks", (1, 2)),
        ("ranks", (0, 2)),
    ],
)
def test_everything_that_changes_the_meaning_of_a_page_changes_the_namespace(field: str, value: object) -> None:
    store: PageStore[Bytes] = PageStore(BUDGET)
    store.put(NAMESPACE.digest(), "hash", page(1, 8))
    elsewhere = replace(NAMESPACE, **{field: value}).digest()  # type: ignore[arg-type]
    assert store.get(elsewhere, "hash") is None
    assert store.count_leading(elsewhere, ["hash"]) == 0
    assert store.leading(elsewhere, ["hash"]) == []


def test_a_page_larger_than_the_store_is_refused_and_takes_nothing_with_it() -> None:
    store: PageStore[Bytes] = PageStore(BUDGET)
    store.put("a", "small", page(1, 10))
    assert not store.put("a", "large", page(2, BUDGET + 1))
    assert store.get("a", "small") is not None
    assert store.stats().refused == 1


def test_a_page_in_use_outlives_its_eviction() -> None:
    store: PageStore[Bytes] = PageStore(BUDGET)
    store.put("a", "0", page(7, BUDGET))
    held = store.leading("a", ["0"])
    store.put("a", "1", page(8, BUDGET))
    assert store.get("a", "0") is None
    assert held[0].tolist() == [7] * BUDGET


def test_no_room_is_no_store() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        PageStore(0)


def test_threads_keep_the_books_straight() -> None:
    store: PageStore[Bytes] = PageStore(BUDGET)

    def work(seed: int) -> None:
        for number in range(400):
            store.put("a", str((number * seed) % 11), page(seed, 1 + number % 9))
            store.leading("a", [str(number % 11), str((number + 1) % 11)])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert store.stats().held_bytes == sum(kept.nbytes for kept in store._pages.values()) <= BUDGET
