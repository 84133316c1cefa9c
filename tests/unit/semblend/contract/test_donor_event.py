from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semblend.contract import donor_event
from semblend.contract.donor_event import (
    MAX_ANCHORS,
    DonorAnnounced,
    DonorBatch,
    DonorEventError,
    DonorRelocated,
    DonorsPurged,
    DonorWithdrawn,
    GatesAnnounced,
    GenerationReset,
    Tier,
    anchor_salts,
    decode_batch,
    encode_batch,
    endpoint_of_rank,
    namespace_digest,
    read_key,
    replay_endpoint,
    tenant_of_salt,
)

NAME = st.text(max_size=20)
TIER: st.SearchStrategy[Tier] = st.sampled_from(get_args(Tier))
KEY = b"sixteen bytes and more"


@st.composite
def announced(draw: st.DrawFn) -> DonorAnnounced:
    count = draw(st.integers(0, 5))
    anchors, positions = draw(st.binary(min_size=8 * count, max_size=8 * count)), bytes(4 * count)
    return DonorAnnounced(
        draw(NAME), draw(NAME), draw(st.integers(0, 2**40)), draw(st.integers(1, 64)), anchors, positions, draw(TIER)
    )


EVENTS = st.one_of(
    announced(),
    st.builds(DonorWithdrawn, NAME, NAME),
    st.builds(DonorsPurged, st.none() | NAME, NAME),
    st.builds(DonorRelocated, NAME, TIER),
    st.builds(GenerationReset, st.integers(0, 2**62)),
    st.builds(GatesAnnounced, st.dictionaries(NAME, st.integers(0, 2**40) | st.floats(0, 1), max_size=3)),
)
BATCHES = st.builds(
    DonorBatch,
    st.floats(0, 2e9),
    st.lists(EVENTS, max_size=4).map(tuple),
    st.integers(0, 9),
)


@given(BATCHES)
def test_a_batch_comes_back_as_it_was(batch: DonorBatch) -> None:
    assert decode_batch(encode_batch(batch)) == batch


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(PLAIN)
def test_no_message_breaks_the_decoder(message: Any) -> None:
    with contextlib.suppress(DonorEventError):
        decode_batch(message)


def wire(**changes: Any) -> list[Any]:
    event = encode_batch(DonorBatch(1.0, (DonorAnnounced("d", "n", 64, 32, bytes(8), bytes(4)),)))[1][0]
    return [1.0, [event | changes], 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"anchors": bytes(7)}, "differ in number"),
        ({"positions": bytes(8)}, "differ in number"),
        ({"anchors": "text"}, "Expected `bytes`.*anchors"),
        ({"tokens": True}, "Expected `int`.*tokens"),
        ({"tokens": -1}, "tokens"),
        ({"gram": 0}, "gram"),
        ({"tier": "moon"}, "tier"),
        ({"donor_id": None}, "donor_id"),
        ({"donor_id": "x" * 300}, "length <= 256 - at `.*donor_id`"),
        ({"surprise": 1}, "unknown field"),
        ({"type": 4}, "has no type"),
        ({"anchors": bytes(8 * (MAX_ANCHORS + 1)), "positions": bytes(4 * (MAX_ANCHORS + 1))}, "exceed the maximum"),
    ],
)
def test_what_is_not_of_the_contract_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    assert decode_batch(wire()).events
    with pytest.raises(DonorEventError, match=message):
        decode_batch(wire(**changes))


def test_an_event_that_lacks_a_part_is_refused() -> None:
    with pytest.raises(DonorEventError, match="donor_evicted"):
        decode_batch([1.0, [{"type": "donor_evicted", "v": 1, "donor_id": "d"}], 0])


@pytest.mark.parametrize("changes", [{"type": "donor_painted"}, {"v": 2}])
def test_kinds_of_a_later_version_are_counted_and_left_out(changes: dict[str, Any]) -> None:
    batch = decode_batch([1.0, [wire(**changes)[1][0], wire()[1][0]], 0])
    assert batch.unknown == 1
    assert len(batch.events) == 1


GATES = {"type": "provider_gates", "v": 1, "gates": {"min_run_tokens": 64, "a_later_gate": 0.5}}


def test_gates_travel_as_an_event_of_their_own() -> None:
    assert decode_batch([1.0, [GATES], 0]).events == (GatesAnnounced({"min_run_tokens": 64, "a_later_gate": 0.5}),)


@pytest.mark.parametrize("bad", [None, 3, [], {"x": "text"}, {"x": True}, {"x": -1}, {"x": float("nan")}, {3: 1}])
def test_gates_that_are_no_numbers_are_refused(bad: Any) -> None:
    with pytest.raises(DonorEventError, match="gates"):
        decode_batch([1.0, [GATES | {"gates": bad}], 0])


def test_a_subscriber_from_before_gates_skips_them_and_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its table of kinds lacks the event, as that of semblend 0.1 does; a new key in an old kind would not be read."""
    old = donor_event._KINDS - {"provider_gates"}
    message = encode_batch(DonorBatch(1.0, (GenerationReset(1), GatesAnnounced({"x": 1}), DonorWithdrawn("d", "y"))))
    monkeypatch.setattr(donor_event, "_KINDS", old)
    batch = decode_batch(message)
    assert batch.events == (GenerationReset(1), DonorWithdrawn("d", "y"))
    assert batch.unknown == 1


@given(st.none() | NAME, st.none() | NAME, st.none() | NAME, st.none() | NAME)
def test_digests_are_equal_only_for_equal_names(
    tenant: str | None, lora: str | None, tenant2: str | None, lora2: str | None
) -> None:
    equal = (tenant, lora) == (tenant2, lora2)
    assert (namespace_digest(KEY, tenant, lora) == namespace_digest(KEY, tenant2, lora2)) is equal


def test_digests_need_the_key_and_hide_the_salt() -> None:
    tenant = tenant_of_salt("canary-salt")
    assert tenant is not None
    assert "canary" not in tenant
    assert tenant_of_salt(None) is None
    digest = namespace_digest(KEY, tenant, None)
    assert digest != namespace_digest(b"another key of sixteen", tenant, None)
    assert tenant not in digest
    assert anchor_salts(KEY, digest) != anchor_salts(KEY, namespace_digest(KEY, None, None))


def test_a_key_is_read_from_a_file_and_short_or_missing_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(ValueError, match="cannot be read"):
        read_key(path)
    path.write_bytes(b"short\n")
    with pytest.raises(ValueError, match="has 5 bytes; minimum 16"):
        read_key(path)
    path.write_bytes(b"0123456789abcdef\n")
    assert read_key(path) == b"0123456789abcdef"


@pytest.mark.parametrize("endpoint", ["tcp://*:5657", "ipc:///run/donors"])
def test_ranks_and_their_replays_have_endpoints_of_their_own(endpoint: str) -> None:
    places = [place(endpoint, rank) for rank in range(4) for place in (endpoint_of_rank, replay_endpoint)]
    assert places[0] == endpoint
    assert len(set(places)) == 8
    assert replay_endpoint("tcp://10.0.0.1:5657") == "tcp://10.0.0.1:5658"
