"""What every donor store promises a worker: right books after any operations, and only whole donors readable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from semblend.kv.donor_store import MAX_LOOK_UP, STORES, DonorStore, KVShape, StoreError, open_donor_store

pytestmark = pytest.mark.models

LAYERS, HEADS, DIM = 2, 1, 4
TOKEN_BYTES = LAYERS * 2 * HEADS * DIM * 2
CEILING = 40 * TOKEN_BYTES


SHAPE = KVShape(LAYERS, HEADS, DIM, torch.bfloat16)


@pytest.fixture(params=STORES.names())
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    def make(max_bytes: int | None = None) -> DonorStore:
        return open_donor_store(SHAPE, max_bytes, request.param)

    return make


def rows(count: int, value: float) -> torch.Tensor:
    return torch.full((count, HEADS, DIM), value, dtype=torch.bfloat16)


def fill(store: DonorStore, donor_id: str, tokens: int) -> None:
    for layer in range(LAYERS):
        store.write(donor_id, layer, 0, rows(tokens, layer + 1.0), rows(tokens, -layer - 1.0))


@dataclass
class Expected:
    tokens: int
    committed: bool = False
    written: set[tuple[int, int]] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        return len(self.written) == LAYERS * self.tokens


MakeStore = Callable[..., DonorStore]


IDS = st.sampled_from(["a", "b", "c"])
OPERATIONS = st.one_of(
    st.tuples(st.just("begin"), IDS, st.integers(-1, 30), st.just(0), st.just(0)),
    st.tuples(st.just("write"), IDS, st.integers(-1, LAYERS), st.integers(-1, 12), st.integers(1, 30)),
    st.tuples(st.just("fill"), IDS, st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("commit"), IDS, st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("read"), IDS, st.integers(-1, 12), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("drop"), IDS, st.just(0), st.just(0), st.just(0)),
)


class Model:
    """The store as a dictionary of sets: every operation says whether it must succeed."""

    def __init__(self) -> None:
        self.donors: dict[str, Expected] = {}

    def held(self) -> int:
        return sum(donor.tokens for donor in self.donors.values()) * TOKEN_BYTES

    def begin(self, donor_id: str, tokens: int) -> bool:
        others = sum(donor.tokens for other, donor in self.donors.items() if other != donor_id)
        if tokens <= 0 or (others + tokens) * TOKEN_BYTES > CEILING:
            return False
        self.donors[donor_id] = Expected(tokens)
        return True

    def write(self, donor_id: str, layer: int, start: int, length: int) -> bool:
        donor = self.donors.get(donor_id)
        if donor is None or donor.committed or not 0 <= layer < LAYERS or start < 0 or start + length > donor.tokens:
            return False
        donor.written |= {(layer, position) for position in range(start, start + length)}
        return True

    def commit(self, donor_id: str) -> bool:
        donor = self.donors.get(donor_id)
        if donor is None or not donor.complete:
            return False
        donor.committed = True
        return True

    def read(self, donor_id: str, start: int, length: int) -> bool:
        donor = self.donors.get(donor_id)
        return donor is not None and donor.committed and start >= 0 and 0 < length <= donor.tokens - start

    def expects(self, operation: str, donor_id: str, a: int, b: int, c: int) -> bool:
        if operation == "begin":
            return self.begin(donor_id, a)
        if operation == "write":
            return self.write(donor_id, a, b, c)
        return self.commit(donor_id) if operation == "commit" else self.read(donor_id, a, b)


def succeeds(operation: str, store: DonorStore, donor_id: str, a: int, b: int, c: int) -> bool:
    try:
        if operation == "begin":
            store.begin(donor_id, a)
        elif operation == "write":
            store.write(donor_id, a, b, rows(c, 1.0), rows(c, 2.0))
        elif operation == "commit":
            store.commit(donor_id)
        else:
            read = store.read(donor_id, a, b)
            assert read.shape == (LAYERS, 2, b, HEADS, DIM)
    except StoreError:
        return False
    return True


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(OPERATIONS, max_size=40))
def test_the_store_keeps_its_books_after_any_sequence(
    make_store: MakeStore, operations: list[tuple[str, str, int, int, int]]
) -> None:
    store, model = make_store(CEILING), Model()
    for operation, donor_id, a, b, c in operations:
        if operation == "drop":
            assert store.drop(donor_id) is (model.donors.pop(donor_id, None) is not None)
        elif operation == "fill":
            donor = model.donors.get(donor_id)
            if donor is not None and not donor.committed:
                fill(store, donor_id, donor.tokens)
                for layer in range(LAYERS):
                    assert model.write(donor_id, layer, 0, donor.tokens)
        else:
            expected = model.expects(operation, donor_id, a, b, c)
            assert succeeds(operation, store, donor_id, a, b, c) is expected, operation
        assert store.bytes_held == model.held() <= CEILING
        committed = {name for name, donor in model.donors.items() if donor.committed}
        assert store.contains(["a", "b", "c", "d"]) == [name in committed for name in "abcd"]


def test_what_was_written_is_read_back_by_range(make_store: MakeStore) -> None:
    store = make_store()
    store.begin("a", 10)
    source = torch.Generator().manual_seed(0)
    kv = torch.randn((LAYERS, 2, 10, HEADS, DIM), generator=source).to(torch.bfloat16)
    for start, end in ((6, 10), (0, 3), (2, 7)):  # out of order and overlapping, as after a preemption
        for layer in range(LAYERS):
            store.write("a", layer, start, kv[layer, 0, start:end], kv[layer, 1, start:end])
    store.commit("a")
    assert torch.equal(store.read("a", 0, 10), kv)
    assert torch.equal(store.read("a", 4, 5), kv[:, :, 4:9])
    assert store.bytes_held == 10 * TOKEN_BYTES == kv.numel() * 2


def test_memory_that_was_filled_in_place_is_read_back(make_store: MakeStore) -> None:
    store = make_store()
    store.begin("a", 10)
    memory = store.memory("a")
    assert (memory.device.type, memory.dtype) == ("cpu", torch.bfloat16)
    kv = torch.randn((LAYERS, 2, 10, HEADS, DIM), generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    memory.copy_(kv)
    with pytest.raises(StoreError, match="0 of 10"):
        store.commit("a")
    store.filled("a")
    store.commit("a")
    assert torch.equal(store.read("a", 2, 6), kv[:, :, 2:8])
    for late in (store.memory, store.filled):
        with pytest.raises(StoreError, match="is committed"):
            late("a")


def test_memory_of_a_dropped_donor_may_be_filled_and_counts_for_nothing(make_store: MakeStore) -> None:
    store = make_store()
    store.begin("a", 4)
    memory = store.memory("a")
    store.drop("a")
    memory.fill_(1.0)
    for late in (store.memory, store.filled):
        with pytest.raises(StoreError, match="not stored"):
            late("a")
    assert store.bytes_held == 0


def test_an_incomplete_donor_is_neither_committed_nor_readable(make_store: MakeStore) -> None:
    store = make_store()
    store.begin("a", 8)
    store.write("a", 0, 0, rows(8, 1.0), rows(8, 1.0))
    store.write("a", 1, 0, rows(7, 1.0), rows(7, 1.0))
    with pytest.raises(StoreError, match="7 of 8"):
        store.commit("a")
    with pytest.raises(StoreError, match="not committed"):
        store.read("a", 0, 1)
    assert store.contains(["a"]) == [False]
    store.write("a", 1, 7, rows(1, 1.0), rows(1, 1.0))
    store.commit("a")
    assert store.contains(["a"]) == [True]


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (0, 0), (3, -1), (0, 9), (8, 1)])
def test_ranges_outside_the_donor_are_refused(make_store: MakeStore, start: int, length: int) -> None:
    store = make_store()
    store.begin("a", 8)
    fill(store, "a", 8)
    store.commit("a")
    with pytest.raises(StoreError, match="outside its 8 tokens"):
        store.read("a", start, length)


def test_committed_donors_do_not_change_and_views_outlive_them(make_store: MakeStore) -> None:
    store = make_store()
    store.begin("a", 4)
    fill(store, "a", 4)
    store.commit("a")
    with pytest.raises(StoreError, match="is committed"):
        store.write("a", 0, 0, rows(1, 9.0), rows(1, 9.0))
    view = store.read("a", 0, 4)
    store.begin("a", 2)
    fill(store, "a", 2)
    assert view[0, 0].eq(1.0).all()
    assert view.shape[2] == 4


def test_the_ceiling_refuses_and_leaves_the_old_donor_alone(make_store: MakeStore) -> None:
    store = make_store(10 * TOKEN_BYTES)
    store.begin("a", 6)
    fill(store, "a", 6)
    store.commit("a")
    for donor_id, tokens in (("b", 5), ("a", 11)):
        with pytest.raises(StoreError, match="ceiling"):
            store.begin(donor_id, tokens)
    assert store.contains(["a"]) == [True]
    store.begin("a", 10)
    assert store.bytes_held == 10 * TOKEN_BYTES


def test_wrong_shapes_and_dtypes_are_refused_not_converted(make_store: MakeStore) -> None:
    store = make_store()
    store.begin("a", 4)
    with pytest.raises(StoreError, match=r"not torch\.bfloat16"):
        store.write("a", 0, 0, rows(2, 1.0).float(), rows(2, 1.0))
    with pytest.raises(StoreError, match=r"not \(2, 1, 4\)"):
        store.write("a", 0, 0, rows(2, 1.0), rows(1, 1.0))


def test_donors_begun_in_inference_mode_can_be_written_outside(make_store: MakeStore) -> None:
    """Engines step in inference mode, which is per thread: a copy made elsewhere must still be possible."""
    store = make_store()
    with torch.inference_mode():
        store.begin("a", 4)
    fill(store, "a", 4)
    store.commit("a")
    assert store.contains(["a"]) == [True]


def test_a_store_error_is_a_lookup_error(make_store: MakeStore) -> None:
    with pytest.raises(LookupError, match="not stored"):
        make_store().read("nobody", 0, 1)


def test_a_look_up_is_one_bounded_call(make_store: MakeStore) -> None:
    store = make_store()
    assert store.contains([]) == []
    assert store.contains(["nobody"] * MAX_LOOK_UP) == [False] * MAX_LOOK_UP
    with pytest.raises(StoreError, match="at most"):
        store.contains(["nobody"] * (MAX_LOOK_UP + 1))


def test_what_was_written_does_not_follow_the_tensors_it_came_from(make_store: MakeStore) -> None:
    store = make_store()
    store.begin("a", 2)
    keys, values = rows(2, 1.0), rows(2, 2.0)
    for layer in range(LAYERS):
        store.write("a", layer, 0, keys, values)
    keys.fill_(7.0)
    store.commit("a")
    assert store.read("a", 0, 2)[:, 0].eq(1.0).all()
