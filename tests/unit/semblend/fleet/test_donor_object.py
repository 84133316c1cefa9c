"""The canonical bytes of a donor: what goes in comes out, by any ranges, by any heads, and nothing else does."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.semblend.fleet.fleet_donors import KEYS, SECRET, WRITER, kv_of

from semblend.fleet.donor_object import PAGE_TOKENS, ObjectForm, RowShape, SealError, pack, read_head
from semblend.fleet.keys import SpaceKeys

ID = "ab" * 16
SHAPES = st.builds(RowShape, st.integers(1, 3), st.integers(1, 2), st.integers(1, 4), st.sampled_from([4, 6]))
TOKENS = st.integers(1, 3 * PAGE_TOKENS + 5)


@given(SHAPES, TOKENS, st.integers(0, 9))
@settings(max_examples=40)
def test_a_donor_comes_out_as_it_went_in(shape: RowShape, tokens: int, seed: int) -> None:
    kv = kv_of(seed, tokens, shape)
    data = pack(kv, KEYS, ID, WRITER)
    form = ObjectForm(shape, tokens)
    assert len(data) == form.total_bytes == form.offset(form.pages)
    head = read_head(data[: form.head_bytes].tobytes(), form, KEYS, ID)
    back = np.zeros_like(kv)
    head.unpack(data[form.head_bytes :], 0, back)
    assert head.writer == WRITER
    np.testing.assert_array_equal(back, kv)


def test_the_bytes_do_not_depend_on_the_strides_of_their_source() -> None:
    kv = kv_of(1, 100)
    strided = np.asarray(kv.transpose(0, 1, 3, 2, 4), order="C").transpose(0, 1, 3, 2, 4)
    np.testing.assert_array_equal(pack(kv, KEYS, ID, WRITER), pack(strided, KEYS, ID, WRITER))


@given(st.integers(0, 200), st.integers(1, 150), st.sampled_from([1, 2, 4]))
@settings(max_examples=40)
def test_every_rank_of_any_parallel_degree_reads_its_heads_of_any_run(start: int, length: int, ranks: int) -> None:
    """Units are addressed by page and head alone, so a reader's degree need not be the writer's."""
    shape, tokens = RowShape(2, 2, 4, 4), 350
    kv = kv_of(3, tokens, shape)
    data = pack(kv, KEYS, ID, WRITER)
    form = ObjectForm(shape, tokens)
    head = read_head(data[: form.head_bytes].tobytes(), form, KEYS, ID)
    each = shape.heads // ranks
    for rank in range(ranks):
        heads = range(rank * each, (rank + 1) * each)
        own = np.zeros_like(kv[:, :, :, : len(heads)])
        for first, end in form.pages_of([(start, start + length)]):
            for page in range(first, end):
                part = data[form.offset(page, heads.start) : form.offset(page, heads.stop)]
                head.unpack(part, page, own, heads)
        run = slice(start, start + length)
        np.testing.assert_array_equal(own[:, :, run], kv[:, :, run, heads.start : heads.stop])


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(1, 300)), min_size=1, max_size=6))
def test_pages_of_ranges_are_those_that_hold_a_token_of_them(given_ranges: list[tuple[int, int]]) -> None:
    ranges = [(start, start + length) for start, length in given_ranges]
    spans = ObjectForm(RowShape(1, 1, 1, 2), 1200).pages_of(ranges)
    read = {page for first, end in spans for page in range(first, end)}
    assert read == {token // PAGE_TOKENS for start, end in ranges for token in range(start, end)}
    assert all(one[1] < other[0] for one, other in pairwise(spans)), "joined and ascending"


@given(st.data())
@settings(max_examples=60)
def test_no_byte_of_an_object_can_be_changed(data: st.DataObject) -> None:
    kv = kv_of(2, 90)
    packed = pack(kv, KEYS, ID, WRITER)
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    form = ObjectForm(RowShape(*kv.shape[:2], *kv.shape[3:]), 90)
    with pytest.raises(SealError):
        read_head(packed[: form.head_bytes].tobytes(), form, KEYS, ID).unpack(
            packed[form.head_bytes :], 0, np.zeros_like(kv)
        )


def test_an_object_of_another_donor_space_or_length_is_refused() -> None:
    kv = kv_of(2, 90)
    form = ObjectForm(RowShape(*kv.shape[:2], *kv.shape[3:]), 90)
    head = pack(kv, KEYS, ID, WRITER)[: form.head_bytes].tobytes()
    with pytest.raises(SealError):
        read_head(head, form, KEYS, "cd" * 16)
    with pytest.raises(SealError):
        read_head(head, form, SpaceKeys.derive(SECRET, "tenant two"), ID)
    with pytest.raises(SealError):
        read_head(head, ObjectForm(form.shape, 91), KEYS, ID)


def test_units_cannot_change_places() -> None:
    kv = kv_of(2, 2 * PAGE_TOKENS)
    packed = pack(kv, KEYS, ID, WRITER)
    form = ObjectForm(RowShape(*kv.shape[:2], *kv.shape[3:]), 2 * PAGE_TOKENS)
    swapped = np.concatenate([packed[form.offset(1) :], packed[form.offset(0) : form.offset(1)]])
    head = read_head(packed[: form.head_bytes].tobytes(), form, KEYS, ID)
    with pytest.raises(SealError, match="page 0, head 0"):
        head.unpack(swapped, 0, np.zeros_like(kv))
