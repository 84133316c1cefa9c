"""Numbers read by the compiled loop against msgspec's own reading of the same bytes."""

from __future__ import annotations

import contextlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semgate.events.numbers import read_hashes, read_tokens
from semgate.events.wire import Stored, Unread, decode_batch, engine_hash

edges = [edge + off for edge in (0, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 63) for off in (-1, 0, 1)]
integers = st.sampled_from([*edges, *(-edge for edge in edges if edge <= 1 << 63), (1 << 64) - 1]) | st.integers(
    -(1 << 63), (1 << 64) - 1
)
digests = st.binary(max_size=40) | st.binary(min_size=256, max_size=300)
anything = integers | digests | st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.just([1])


@given(st.lists(integers.filter(lambda number: number >= -(1 << 63)) | digests, max_size=40))
def test_hashes_are_what_one_by_one_gives(values: list[int | bytes]) -> None:
    read = read_hashes(msgspec.Raw(msgspec.msgpack.encode(values)))
    assert read.tolist() == [engine_hash(value) for value in values]


@given(st.lists(st.integers(0, (1 << 32) - 1) | st.sampled_from([e for e in edges if 0 <= e < 1 << 32]), max_size=40))
def test_token_ids_are_what_was_sent(values: list[int]) -> None:
    assert read_tokens(msgspec.Raw(msgspec.msgpack.encode(values))).tolist() == values


@given(st.lists(anything, max_size=6) | anything)
def test_what_is_no_token_id_is_refused(values: object) -> None:
    raw = msgspec.Raw(msgspec.msgpack.encode(values))
    is_list = isinstance(values, list)
    if is_list and all(type(each) is int and 0 <= each < 1 << 32 for each in values):  # type: ignore[attr-defined]
        assert read_tokens(raw).tolist() == values
    else:
        with pytest.raises(ValueError, match=r"token ids|array"):
            read_tokens(raw)


@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_are_read_within_their_length(data: bytes) -> None:
    for read in (read_hashes, read_tokens):
        with contextlib.suppress(ValueError):
            read(msgspec.Raw(data))


def test_many_of_every_length_of_array() -> None:
    for count in (0, 15, 16, 65_535, 65_536):
        values = np.random.default_rng(count).integers(0, 1 << 32, count, np.uint64).tolist()
        assert read_tokens(msgspec.Raw(msgspec.msgpack.encode(values))).tolist() == values


def test_an_event_with_a_token_id_too_wide_costs_itself_alone() -> None:
    event = {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": [1], "block_size": 1}
    unread, stored = decode_batch(msgspec.msgpack.encode([1.0, [event | {"token_ids": [1 << 32]}, event], 0]))
    assert unread is Unread.MALFORMED
    assert isinstance(stored, Stored)
