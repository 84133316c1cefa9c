"""Block keys against a plain SipHash, and the laws that routing rests on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semgate.index.keys import SECRET, extra_key, request_keys, root_key

_64 = (1 << 64) - 1
ROOT = root_key("model", None, None)


def plain_siphash(words: list[int]) -> int:
    """SipHash-1-3 over 64-bit words, as in the paper, with unbounded integers."""
    low, high = int(SECRET.low), int(SECRET.high)
    v = [
        low ^ 0x736F6D6570736575,
        high ^ 0x646F72616E646F6D,
        low ^ 0x6C7967656E657261,
        high ^ 0x7465646279746573,
    ]

    def turn(value: int, by: int) -> int:
        return ((value << by) | (value >> (64 - by))) & _64

    def mix() -> None:
        v[0] = (v[0] + v[1]) & _64
        v[1] = turn(v[1], 13) ^ v[0]
        v[0] = turn(v[0], 32)
        v[2] = (v[2] + v[3]) & _64
        v[3] = turn(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & _64
        v[3] = turn(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & _64
        v[1] = turn(v[1], 17) ^ v[2]
        v[2] = turn(v[2], 32)

    for word in words:
        v[3] ^= word
        mix()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        mix()
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def plain_keys(tokens: list[int], block_tokens: int, root: int, extras: list[int]) -> list[int]:
    keys, parent = [], root
    for block in range(len(tokens) // block_tokens):
        own = tokens[block * block_tokens : (block + 1) * block_tokens]
        pairs = [own[i] | own[i + 1] << 32 for i in range(0, block_tokens - 1, 2)]
        last = own[-1] if block_tokens % 2 else 0
        parent = plain_siphash([parent, extras[block], *pairs, last | block_tokens << 48])
        keys.append(parent)
    return keys


@given(st.lists(st.integers(0, 2**32 - 1), max_size=80), st.integers(1, 17), st.integers(0, _64), st.data())
def test_keys_equal_the_plain_siphash(tokens: list[int], block_tokens: int, root: int, data: st.DataObject) -> None:
    count = len(tokens) // block_tokens
    extras = data.draw(st.lists(st.integers(0, _64), min_size=count, max_size=count))
    keys = request_keys(np.array(tokens, np.uint32), block_tokens, root, np.array(extras, np.uint64))
    assert keys.tolist() == plain_keys(tokens, block_tokens, root, extras)


@given(st.lists(st.integers(0, 3), max_size=64), st.lists(st.integers(0, 3), max_size=64), st.integers(1, 8))
def test_keys_agree_exactly_on_the_shared_leading_blocks(one: list[int], other: list[int], block_tokens: int) -> None:
    first = request_keys(np.array(one, np.uint32), block_tokens, ROOT).tolist()
    second = request_keys(np.array(other, np.uint32), block_tokens, ROOT).tolist()
    shared = 0
    while shared < min(len(first), len(second)) and (
        one[: (shared + 1) * block_tokens] == other[: (shared + 1) * block_tokens]
    ):
        shared += 1
    assert first[:shared] == second[:shared]
    assert not set(first[shared:]) & set(second[shared:])


def test_only_full_blocks_have_keys() -> None:
    tokens = np.arange(33, dtype=np.uint32)
    assert len(request_keys(tokens, 16, ROOT)) == 2
    assert len(request_keys(tokens[:15], 16, ROOT)) == 0


def test_an_extra_changes_its_block_and_all_behind_it() -> None:
    tokens = np.arange(64, dtype=np.uint32)
    extras = np.array([0, extra_key(b"an image"), 0, 0], np.uint64)
    plain, mixed = request_keys(tokens, 16, ROOT), request_keys(tokens, 16, ROOT, extras)
    assert (plain == mixed).tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("m", None, None), ("m", "", None)),
        (("m", "a", None), ("m", None, "a")),
        (("m", "a", None), ("m", "b", None)),
        (("ma", "b", None), ("m", "ab", None)),
        (("m", "=", None), ("m", "", "=")),
    ],
)
def test_namespaces_do_not_meet(
    one: tuple[str, str | None, str | None], other: tuple[str, str | None, str | None]
) -> None:
    assert root_key(*one) != root_key(*other)


def test_a_namespace_is_the_same_every_time_and_takes_any_text() -> None:
    assert root_key("m", "s", None) == root_key("m", "s", None)
    assert 0 <= root_key("m", "\ud800", "x" * 100_000) <= _64
