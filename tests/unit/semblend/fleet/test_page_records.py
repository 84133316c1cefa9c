"""What a record vouches for: pages as their writer computed them, for one donor, page, writer and tenant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.semblend.fleet.fleet_donors import KEYS, SECRET, WRITER, tokens_of

from semblend.fleet.keys import SpaceKeys
from semblend.fleet.page_records import pack_record, page_digest, read_record

PAGE = 16
TOKENS = tokens_of(1, 10 * PAGE)
ID = KEYS.donor_id(TOKENS)
DIGESTS = [page_digest(bytes([page]) * 100) for page in range(10)]
RECORD = pack_record(KEYS, WRITER, TOKENS, PAGE, DIGESTS)


def test_a_record_gives_back_tokens_writer_and_tags() -> None:
    read = read_record(KEYS, ID, RECORD, PAGE)
    assert read is not None
    assert (read.tokens == TOKENS).all()
    assert (read.writer, read.pages, read.tagged_pages) == (WRITER, 10, 10)
    assert all(read.fits(page, digest) for page, digest in enumerate(DIGESTS))


def test_bytes_of_another_page_do_not_fit() -> None:
    read = read_record(KEYS, ID, RECORD, PAGE)
    assert read is not None
    assert not any(read.fits(page, DIGESTS[page - 1]) for page in range(10))


def test_a_page_without_a_tag_never_fits() -> None:
    record = pack_record(KEYS, WRITER, TOKENS, PAGE, [*DIGESTS[:4], None, *DIGESTS[5:]])
    read = read_record(KEYS, ID, record, PAGE)
    assert read is not None
    assert read.tagged_pages == 9
    assert not read.is_tagged(4)
    assert not read.fits(4, DIGESTS[4])
    assert not read.fits(4, b"")


@given(st.integers(0, len(RECORD) - 1), st.integers(1, 255))
def test_no_byte_of_a_record_can_be_changed(at: int, flip: int) -> None:
    changed = bytearray(RECORD)
    changed[at] ^= flip
    assert read_record(KEYS, ID, bytes(changed), PAGE) is None


@given(st.integers(0, len(RECORD) - 1))
def test_a_record_cannot_be_cut(size: int) -> None:
    assert read_record(KEYS, ID, RECORD[:size], PAGE) is None


@pytest.mark.parametrize(
    "keys",
    [SpaceKeys.derive(SECRET, "tenant two"), SpaceKeys.derive(bytes(32), "tenant one")],
    ids=["tenant", "secret"],
)
def test_another_tenant_or_secret_neither_reads_nor_makes_a_record(keys: SpaceKeys) -> None:
    assert read_record(keys, ID, RECORD, PAGE) is None
    assert read_record(keys, keys.donor_id(TOKENS), RECORD, PAGE) is None
    assert read_record(KEYS, ID, pack_record(keys, WRITER, TOKENS, PAGE, DIGESTS), PAGE) is None


def test_a_record_of_other_tokens_or_another_page_size_is_refused() -> None:
    assert read_record(KEYS, KEYS.donor_id(tokens_of(2, 160)), RECORD, PAGE) is None
    assert read_record(KEYS, ID, RECORD, 2 * PAGE) is None
