"""Events joined per request: what a row says of reuse, and that nothing else can make it say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembench.engine_events.follow import EventFollower
from sembench.engine_events.join import backend_rows
from sembench.gates.request_ids import item_of, requests_of_result
from sembench.metrics.rows import BackendRow
from semblend.contract import (
    Declined,
    DonorEvicted,
    DonorRegistered,
    Event,
    EventLine,
    FaultContained,
    LoadAdvertised,
    LookupFinished,
    Materialized,
    Outcome,
)

GOLDEN = Path(__file__).parent / "golden" / "engine_events" / "semblend.jsonl"
ITEM = "3f2a9c0d1b7e4a65"
ENGINE_ID = f"cmpl-{ITEM}-0-9a5afe4c"
FOUND = LookupFinished(ENGINE_ID, "ns", 1024, 0, 897, 2, ("d0",))
NOTHING = LookupFinished(ENGINE_ID, "ns", 1024, 0, 0, 0, (), None, "no_candidate")
PROMISED = LoadAdvertised(ENGINE_ID, ("d0",), 1001, 16)
LOADED = Materialized(ENGINE_ID, ("d0",), 897, 104, 2, 7.5, 74.0)
BROKEN = FaultContained(ENGINE_ID, "load", "StoreError: gone")


def row_of(*events: Event) -> BackendRow:
    rows = backend_rows([EventLine(event, "vllm", i, float(i)) for i, event in enumerate(events)], {ITEM})
    assert list(rows) == [ITEM]
    return rows[ITEM]


def test_a_confirmed_load_is_reported_in_full() -> None:
    assert row_of(FOUND, PROMISED, LOADED) == BackendRow(
        engine_request_id=ENGINE_ID,
        outcome="backend_materialized_reuse",
        found_tokens=897,
        advertised_tokens=1001,
        boundary=16,
        reused_tokens=897,
        computed_tokens=104,
        runs=2,
        decline_reason=None,
        faults=0,
        load_ms=7.5,
        compute_ms=74.0,
    )


@pytest.mark.parametrize(
    ("events", "outcome", "reused", "advertised", "reason"),
    [
        ([FOUND, PROMISED], Outcome.BACKEND_DECLINED_REUSE, None, 1001, None),
        ([FOUND], Outcome.BACKEND_DECLINED_REUSE, None, 0, None),
        ([FOUND, Declined(ENGINE_ID, "capacity")], Outcome.BACKEND_DECLINED_REUSE, 0, 0, "capacity"),
        ([FOUND, PROMISED, BROKEN], Outcome.BACKEND_DECLINED_REUSE, 0, 1001, "internal_error"),
        ([FOUND, PROMISED, LOADED, BROKEN], Outcome.BACKEND_DECLINED_REUSE, 0, 1001, "internal_error"),
        (
            [FOUND, PROMISED, LOADED, NOTHING, Declined(ENGINE_ID, "stale")],
            Outcome.BACKEND_DECLINED_REUSE,
            0,
            1001,
            "stale",
        ),
        ([FOUND, PROMISED, Materialized(ENGINE_ID, (), 0, 1001, 0)], Outcome.BACKEND_DECLINED_REUSE, 0, 1001, None),
        ([NOTHING], Outcome.COLD_FALLBACK, 0, 0, "no_candidate"),
        ([NOTHING, Declined(ENGINE_ID, "no_candidate")], Outcome.COLD_FALLBACK, 0, 0, "no_candidate"),
        ([Declined(ENGINE_ID, "disabled")], Outcome.COLD_FALLBACK, 0, 0, "disabled"),
        ([BROKEN], Outcome.BACKEND_DECLINED_REUSE, 0, None, "internal_error"),
        ([FaultContained(ENGINE_ID, "arrive", "x")], Outcome.COLD_FALLBACK, None, None, None),
        (
            [LookupFinished(ENGINE_ID, "ns", 1024, 896, 0, 0, (), None, "exact_prefix_covers")],
            Outcome.EXACT_PREFIX,
            0,
            0,
            "exact_prefix_covers",
        ),
        (
            [LookupFinished(ENGINE_ID, "ns", 1024, 896, 0, 0, (), 0.8, "not_token_identical")],
            Outcome.SEMANTIC_DISCOVERY_ONLY,
            0,
            0,
            "not_token_identical",
        ),
    ],
)
def test_only_a_load_that_was_kept_is_reuse(
    events: list[Event], outcome: Outcome, reused: int | None, advertised: int | None, reason: str | None
) -> None:
    row = row_of(*events)
    assert (row.outcome, row.reused_tokens, row.advertised_tokens, row.decline_reason) == (
        outcome,
        reused,
        advertised,
        reason,
    )


def test_a_later_load_of_the_same_request_replaces_the_earlier_one() -> None:
    again = LoadAdvertised(ENGINE_ID, ("d0",), 500, 64)
    assert row_of(FOUND, PROMISED, LOADED, again).reused_tokens is None
    smaller = Materialized(ENGINE_ID, ("d0",), 400, 100, 1)
    row = row_of(FOUND, PROMISED, LOADED, again, smaller)
    assert (row.reused_tokens, row.advertised_tokens, row.boundary) == (400, 500, 64)


def test_a_fault_elsewhere_is_counted_and_leaves_the_load_standing() -> None:
    row = row_of(FOUND, PROMISED, LOADED, FaultContained(ENGINE_ID, "capture", "StoreError: full"))
    assert (row.reused_tokens, row.faults) == (897, 1)


def test_donors_cold_arms_and_strangers_are_no_items() -> None:
    events: list[Event] = [
        DonorRegistered(ENGINE_ID, "d0", "ns", 10),
        DonorEvicted("d0", "ns", "capacity"),
        Materialized(f"cmpl-cold.{ITEM}-0-9a5afe4c", ("d0",), 5, 0, 1),
        Materialized(f"cmpl-donor.{ITEM}-0-9a5afe4c", ("d0",), 5, 0, 1),
        Materialized(f"cmpl-probe.{ITEM}-0-9a5afe4c", ("d0",), 5, 0, 1),
        Materialized(f"cmpl-{ITEM}ff-0-9a5afe4c", ("d0",), 5, 0, 1),
        Materialized("", ("d0",), 5, 0, 1),
    ]
    lines = [EventLine(event, "vllm", i, 0.0) for i, event in enumerate(events)]
    assert backend_rows(lines, {ITEM}) == {}
    assert set(backend_rows(lines, {f"probe.{ITEM}"})) == {f"probe.{ITEM}"}


def test_an_item_that_was_sent_again_is_its_last_request() -> None:
    """A run that was killed and resumed sends the item once more."""
    second = f"cmpl-{ITEM}-0-00000001"
    events: list[Event] = [FOUND, PROMISED, LOADED, LookupFinished(second, "ns", 1024, 0, 0, 0, (), None, "stale")]
    row = row_of(*events)
    assert (row.engine_request_id, row.reused_tokens, row.decline_reason) == (second, 0, "stale")


def test_the_golden_stream_joins_every_request_it_names() -> None:
    follower = EventFollower(GOLDEN)
    lines = follower.read()
    named = {json.loads(text).get("request_id") for text in GOLDEN.read_text().splitlines()[:-1]} - {None}
    items = {name.split("-")[1] for name in named}
    rows = backend_rows(lines, items)
    assert set(rows) == items
    confirmed = {row.engine_request_id: row.reused_tokens for row in rows.values() if row.reused_tokens}
    assert confirmed == {e.event.request_id: e.event.reused_tokens for e in lines if isinstance(e.event, Materialized)}
    assert (follower.damaged, follower.missing) == (1, 2)


EVENTS = st.sampled_from(
    [FOUND, NOTHING, PROMISED, LOADED, BROKEN, Declined(ENGINE_ID, "stale"), FaultContained(ENGINE_ID, "capture", "x")]
)


@given(st.lists(EVENTS, min_size=1))
def test_no_order_of_events_makes_reuse_without_a_load(events: list[Event]) -> None:
    row = row_of(*events)
    is_reuse = row.outcome == Outcome.BACKEND_MATERIALIZED_REUSE
    assert is_reuse == bool(row.reused_tokens)
    if is_reuse:
        last = max(i for i, event in enumerate(events) if event is LOADED)
        assert not any(event is PROMISED or isinstance(event, Declined) for event in events[last + 1 :])
    assert row.faults == sum(isinstance(event, FaultContained) for event in events)


# -- engines decorate request ids ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "engine_id",
    [
        ITEM,
        f"cmpl-{ITEM}",
        f"cmpl-{ITEM}-0",
        f"cmpl-{ITEM}-0-9bbbed82",
        f"chatcmpl-{ITEM}",
        f"chatcmpl-{ITEM}-9bbbed82",
        f"chatcmpl-{ITEM}-12345678",
        f"{ITEM}-9bbbed82",
        f"{ITEM}_0",
    ],
)
def test_the_engines_names_of_an_item(engine_id: str) -> None:
    assert item_of(engine_id, {ITEM, "other"}) == ITEM


@pytest.mark.parametrize(
    "engine_id",
    [f"cmpl-cold.{ITEM}-0-9bbbed82", f"{ITEM}-9bbbed8", f"{ITEM}-9BBBED82", f"{ITEM}-0-1-9bbbed82", f"x{ITEM}", ""],
)
def test_what_is_not_an_items_name(engine_id: str) -> None:
    assert item_of(engine_id, {ITEM}) is None


def test_a_name_that_could_be_two_items_is_none() -> None:
    assert item_of("cmpl-a-1-9bbbed82", {"a", "a-1"}) is None
    assert requests_of_result(["cmpl-a-1-9bbbed82", "cmpl-b-0"], {"a", "a-1", "b"}) == ("b",)
