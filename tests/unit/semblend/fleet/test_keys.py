"""Laws of the keys: equal donors meet, everything else is apart, and the secret decides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.semblend.fleet.fleet_donors import KEYS, SECRET, WRITER, tokens_of

from sembase.errors import ConfigurationError
from semblend.fleet.keys import SpaceKeys


def test_equal_tokens_have_equal_ids_on_every_replica() -> None:
    other_replica = SpaceKeys.derive(SECRET, "tenant one")
    assert other_replica == KEYS
    assert other_replica.donor_id(tokens_of(1, 900)) == KEYS.donor_id(tokens_of(1, 900))


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40), st.data())
def test_ids_differ_when_a_token_an_order_or_a_length_does(ids: list[int], data: st.DataObject) -> None:
    tokens = np.array(ids, np.uint32)
    changed = tokens.copy()
    changed[data.draw(st.integers(0, len(ids) - 1))] ^= np.uint32(data.draw(st.integers(1, 2**32 - 1)))
    longer = np.append(tokens, np.uint32(0))
    assert len({KEYS.donor_id(each) for each in (tokens, changed, longer, tokens[:-1])}) == 4


@given(st.text("ab\0", max_size=4), st.text("ab\0", max_size=4))
def test_spaces_share_no_key_unless_they_are_one(one: str, other: str) -> None:
    first, second = SpaceKeys.derive(SECRET, one), SpaceKeys.derive(SECRET, other)
    if one == other:
        assert first == second
    else:
        assert not {first.space, *first.salts} & {second.space, *second.salts}
        assert first.donor_id(tokens_of(1, 64)) != second.donor_id(tokens_of(1, 64))


def test_a_byte_moved_from_the_secret_to_the_identity_gives_other_keys() -> None:
    assert SpaceKeys.derive(SECRET + b"x", "y") != SpaceKeys.derive(SECRET, "xy")


@given(st.binary(max_size=200), st.integers(0, 5), st.integers(0, 5))
def test_a_tag_fits_its_bytes_at_their_place_only(data: bytes, part: int, other: int) -> None:
    seal = KEYS.seal("ab" * 16, WRITER, b"form")
    tag = seal.tag(part, data)
    assert seal.fits(part, data, tag)
    assert seal.fits(other, data, tag) == (other == part)
    assert not seal.fits(part, data + b"\0", tag)


@pytest.mark.parametrize(
    "about", [("cd" * 16, WRITER, b"form"), ("ab" * 16, b"z" * 16, b"form"), ("ab" * 16, WRITER, b"f")]
)
def test_a_tag_fits_one_donor_writer_and_form_only(about: tuple[str, bytes, bytes]) -> None:
    tag = KEYS.seal("ab" * 16, WRITER, b"form").tag(0, b"kv")
    assert not KEYS.seal(*about).fits(0, b"kv", tag)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 32"):
        SpaceKeys.derive(b"short", "tenant")
