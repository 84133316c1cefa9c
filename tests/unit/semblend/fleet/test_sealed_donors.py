"""Donors through a carrier that an attacker can write to: what is served was written by a holder of the secret."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.unit.semblend.fleet.fleet_donors import KEYS, SECRET, SHAPE, WRITER, kv_of, tokens_of

from semblend.fleet.carrier.base import CarrierError
from semblend.fleet.carrier.files import FileCarrier
from semblend.fleet.donor_object import KvBytes, ObjectForm, pack
from semblend.fleet.keys import SpaceKeys
from semblend.fleet.sealed_donors import FetchOutcome, SealedDonors

TOKENS = 200
ID = KEYS.donor_id(tokens_of(1, TOKENS))
TRUE_KV = kv_of(1, TOKENS)
# All that an attacker without the secret can use: the format, and a secret of their own.
PUBLIC = SpaceKeys.derive(b"a secret that is published, 32b..", "tenant one")
OTHER_TENANT = SpaceKeys.derive(SECRET, "tenant two")


@pytest.fixture
def carrier(tmp_path: Path) -> FileCarrier:
    return FileCarrier(str(tmp_path / "kv"), 1 << 30)


@pytest.fixture
def donors(carrier: FileCarrier) -> SealedDonors:
    return SealedDonors(carrier, SHAPE, WRITER)


def empty() -> KvBytes:
    return np.zeros_like(TRUE_KV)


def first_layer_is_true(kv: KvBytes) -> bool:
    """What ``verify_loads`` sees of a load."""
    return bool((kv[0] == TRUE_KV[0]).all())


def deep_layers_wrong() -> KvBytes:
    """The first layer is true; in the others the order of the tokens is reversed."""
    kv = TRUE_KV.copy()
    kv[1:] = kv[1:, :, ::-1]
    return kv


def flipped_byte(carrier: FileCarrier) -> None:
    data = pack(TRUE_KV, KEYS, ID, WRITER)
    data[len(data) // 2] ^= 0xFF
    carrier.put(ID, data)


def other_text(carrier: FileCarrier) -> None:
    """Pages of another donor of this tenant, sealed by a holder of the secret, under this donor's name."""
    other = KEYS.donor_id(tokens_of(2, TOKENS))
    carrier.put(ID, pack(kv_of(2, TOKENS), KEYS, other, WRITER))


def wrong_deeper_layers(carrier: FileCarrier) -> None:
    carrier.put(ID, pack(deep_layers_wrong(), PUBLIC, ID, WRITER))


def another_tenants_pages(carrier: FileCarrier) -> None:
    carrier.put(ID, pack(TRUE_KV, OTHER_TENANT, ID, WRITER))


def true_head_and_wrong_pages(carrier: FileCarrier) -> None:
    data = pack(TRUE_KV, KEYS, ID, WRITER)
    head = ObjectForm(SHAPE, TOKENS).head_bytes
    data[head:] = pack(deep_layers_wrong(), PUBLIC, ID, WRITER)[head:]
    carrier.put(ID, data)


POISONINGS = [flipped_byte, other_text, wrong_deeper_layers, another_tenants_pages, true_head_and_wrong_pages]


def test_a_donor_of_another_replica_is_fetched_as_it_was_published(donors: SealedDonors, carrier: FileCarrier) -> None:
    into = empty()
    assert donors.publish(KEYS, ID, TRUE_KV)
    other_replica = SealedDonors(carrier, SHAPE, b"another writer..")
    fetched = other_replica.fetch(KEYS, ID, TOKENS, into)
    assert (fetched.outcome, fetched.writer) == (FetchOutcome.FETCHED, WRITER)
    np.testing.assert_array_equal(into, TRUE_KV)


def test_equal_donors_meet_in_one_object(donors: SealedDonors, carrier: FileCarrier) -> None:
    assert donors.publish(KEYS, ID, TRUE_KV)
    assert not SealedDonors(carrier, SHAPE, b"another writer..").publish(KEYS, ID, TRUE_KV)


def test_a_missing_donor_is_missing(donors: SealedDonors) -> None:
    assert donors.fetch(KEYS, ID, TOKENS, empty()).outcome is FetchOutcome.MISSING


def test_a_run_reads_the_pages_it_touches(donors: SealedDonors) -> None:
    donors.publish(KEYS, ID, TRUE_KV)
    into = empty()
    fetched = donors.fetch(KEYS, ID, TOKENS, into, ranges=[(70, 120)])
    np.testing.assert_array_equal(into[:, :, 64:128], TRUE_KV[:, :, 64:128])
    assert not into[:, :, :64].any()
    assert not into[:, :, 128:].any()
    assert fetched.read_bytes == ObjectForm(SHAPE, TOKENS).head_bytes + 64 * SHAPE.token_bytes


def test_a_rank_reads_its_heads(donors: SealedDonors) -> None:
    donors.publish(KEYS, ID, TRUE_KV)
    own = np.zeros_like(TRUE_KV[:, :, :, :1])
    fetched = donors.fetch(KEYS, ID, TOKENS, own, heads=range(1, 2))
    np.testing.assert_array_equal(own, TRUE_KV[:, :, :, 1:])
    assert fetched.read_bytes == ObjectForm(SHAPE, TOKENS).head_bytes + TOKENS * SHAPE.token_bytes // 2


@pytest.mark.parametrize("poison", POISONINGS)
def test_poison_is_refused_removed_and_struck(
    poison: Callable[[FileCarrier], None], donors: SealedDonors, carrier: FileCarrier
) -> None:
    poison(carrier)
    fetched = donors.fetch(KEYS, ID, TOKENS, empty())
    assert (fetched.outcome, fetched.writer) == (FetchOutcome.REFUSED, WRITER)
    assert carrier.contains([ID]) == [False], "a good one can take its place"
    assert donors.publish(KEYS, ID, TRUE_KV)
    assert donors.fetch(KEYS, ID, TOKENS, empty()).outcome is FetchOutcome.FETCHED


def test_without_a_secret_wrong_deeper_layers_would_be_served(carrier: FileCarrier) -> None:
    """Why checksums and the first layer are not enough: a reader whose keys are public takes the same poison."""
    wrong_deeper_layers(carrier)
    into = empty()
    reader = SealedDonors(carrier, SHAPE, WRITER)
    assert reader.fetch(PUBLIC, ID, TOKENS, into).outcome is FetchOutcome.FETCHED
    assert first_layer_is_true(into)
    assert (into != TRUE_KV).any()


def test_an_object_that_is_too_short_makes_room_for_a_whole_one(donors: SealedDonors, carrier: FileCarrier) -> None:
    carrier.put(ID, pack(TRUE_KV, KEYS, ID, WRITER)[:-1])
    assert donors.fetch(KEYS, ID, TOKENS, empty()).outcome is FetchOutcome.MISSING
    assert donors.publish(KEYS, ID, TRUE_KV)


def test_a_donor_that_another_replica_is_writing_is_left_alone(tmp_path: Path) -> None:
    """It reads as missing until all of it is there; Mooncake would remove it under its writer."""

    class BeingWritten(FileCarrier):
        dropped = 0

        def read(self, *_: object) -> bool:
            return False

        def drop(self, name: str) -> bool:
            self.dropped += 1
            return True

    carrier = BeingWritten(str(tmp_path), 1 << 20)
    fetched = SealedDonors(carrier, SHAPE, WRITER).fetch(KEYS, ID, TOKENS, empty())
    assert (fetched.outcome, carrier.dropped) == (FetchOutcome.MISSING, 0)


def test_a_carrier_that_fails_is_an_outcome(tmp_path: Path) -> None:
    class Broken(FileCarrier):
        def read(self, *_: object) -> bool:
            raise CarrierError("no route to host")

    fetched = SealedDonors(Broken(str(tmp_path), 1), SHAPE, WRITER).fetch(KEYS, ID, TOKENS, empty())
    assert (fetched.outcome, fetched.detail) == (FetchOutcome.UNREACHABLE, "no route to host")
