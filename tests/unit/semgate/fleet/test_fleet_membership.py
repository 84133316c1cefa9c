from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clock import Clock

from sembase.errors import ConfigurationError
from semgate.fleet import BreakerOptions, Endpoint, Fleet, Replica
from semgate.fleet.discovery.static import parse_replica, parse_replicas


def endpoint(number: int, **more: object) -> Endpoint:
    return Endpoint(f"replica-{number}", f"http://10.0.0.{number}:8000", **more)  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sets(st.integers(0, 9), max_size=8), max_size=12))
def test_slots_are_unique_and_given_back(rounds: list[set[int]]) -> None:
    taken: dict[int, str] = {}

    def added(replica: Replica) -> None:
        assert replica.slot not in taken
        taken[replica.slot] = replica.name

    def removed(replica: Replica) -> None:
        assert taken.pop(replica.slot) == replica.name

    fleet = Fleet(max_replicas=8, on_add=added, on_remove=removed)
    for wanted in rounds:
        fleet.apply(endpoint(number) for number in sorted(wanted))
        assert {each.name for each in fleet} == {f"replica-{number}" for number in wanted}
        assert {each.slot: each.name for each in fleet} == taken
        assert max(taken, default=-1) < 8


def test_a_replica_keeps_its_state_unless_it_moved() -> None:
    fleet = Fleet()
    fleet.apply([endpoint(1), endpoint(2)])
    first, second = fleet
    ticket = first.begin(500)
    assert fleet.apply([endpoint(1, ready=True), Endpoint("replica-2", "http://10.9.9.9:1")]) == (
        ("replica-2",),
        ("replica-2",),
    )
    assert fleet.find("replica-1") is first
    assert fleet.find("replica-2") is not second
    assert first.view().queued_prefill_tokens == 500
    ticket.end("ok")
    assert first.view().in_flight == 0


def test_a_wrong_list_changes_nothing() -> None:
    fleet = Fleet(max_replicas=2)
    fleet.apply([endpoint(1)])
    with pytest.raises(ConfigurationError, match="named 'replica-2'"):
        fleet.apply([endpoint(2), endpoint(2)])
    with pytest.raises(ConfigurationError, match="at most 2"):
        fleet.apply([endpoint(number) for number in range(3)])
    assert [each.name for each in fleet] == ["replica-1"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["begin", "first", "ok", "fault", "cancelled"]))))
def test_load_is_taken_back_exactly_once(calls: list[tuple[int, str]]) -> None:
    clock = Clock()
    replica = Replica(endpoint(1), 0, BreakerOptions(faults_to_open=1_000, fault_fraction_to_open=1.0), clock)
    tickets = {}
    waiting: dict[int, int] = {}
    alive: set[int] = set()
    for number, (who, what) in enumerate(calls):
        if what == "begin" and who not in tickets:
            tickets[who] = replica.begin(100 + number)
            waiting[who] = 100 + number
            alive.add(who)
        elif what != "begin" and who in tickets:
            waiting.pop(who, None)
            if what == "first":
                tickets[who].first_token()
            else:
                tickets[who].end(what)  # type: ignore[arg-type]
                alive.discard(who)
        view = replica.view()
        assert (view.in_flight, view.queued_prefill_tokens) == (len(alive), sum(waiting.values()))
        assert view.head_prefill_tokens == next(iter(waiting.values()), 0)
    for ticket in tickets.values():
        ticket.end("ok")
    assert (replica.in_flight, replica.queued_prefill_tokens) == (0, 0)


def test_the_head_is_dated_from_when_it_got_to_the_front() -> None:
    clock = Clock()
    replica = Replica(endpoint(1), 0, clock_s=clock)
    first, second = replica.begin(100), replica.begin(200)
    clock.now = 3.0
    first.first_token()
    assert (replica.view().head_prefill_tokens, replica.view().head_since_s) == (200, 3.0)
    clock.now = 5.0
    third = replica.begin(50)
    seen = third.observed(prompt_tokens=60, cached_tokens=10, ttft_ms=90.0)
    assert (seen.tokens_ahead, seen.head_tokens, seen.head_age_ms) == (200, 200, 2_000.0)
    second.end("cancelled")
    assert replica.view().head_since_s == 5.0
    for ticket in (first, third):
        ticket.end("ok")


def test_states_and_their_order() -> None:
    clock = Clock()
    replica = Replica(endpoint(1), 0, BreakerOptions(faults_to_open=1, open_s=2.0), clock)
    assert replica.view().state == "ready"
    assert replica.view() is replica.view()
    replica.healthy = False
    assert replica.view().state == "unhealthy"
    replica.healthy = True
    replica.update(endpoint(1, ready=False))
    assert replica.view().state == "unhealthy"
    replica.update(endpoint(1, ready=True))
    replica.begin(1).end("fault")
    assert replica.view().state == "open"
    clock.now = 2.0
    assert (replica.view().state, replica.view().trial_due) == ("half_open", True)
    trial = replica.begin(1)
    assert not replica.view().trial_due
    replica.draining = True
    assert replica.view().state == "draining"
    replica.draining = False
    trial.end("ok")
    assert replica.view().state == "ready"
    replica.update(endpoint(1, terminating=True))
    assert replica.view().state == "draining"


def test_a_client_that_leaves_says_nothing_about_the_replica() -> None:
    replica = Replica(endpoint(1), 0, BreakerOptions(faults_to_open=1))
    for _ in range(5):
        replica.begin(1).end("cancelled")
    assert replica.state() == "ready"


def test_written_replicas() -> None:
    plain, named = parse_replicas(
        [
            "http://localhost:8101",
            "https://[::1]:443/;name=b;events=tcp://h:5557;replay=tcp://h:5558;donors=tcp://h:5560",
        ]
    )
    assert plain == Endpoint("localhost:8101", "http://localhost:8101")
    assert named == Endpoint(
        "b", "https://[::1]:443", events="tcp://h:5557", replay="tcp://h:5558", donors="tcp://h:5560"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("localhost:8000", "is not a valid URL"),
        ("http://h:99999", "port must be a number"),
        ("http://h:1/v1", "only scheme, host and port"),
        ("http://user@h:1", "only scheme, host and port"),
        ("http://h:1;event=tcp://h:2", "expected name, events, replay, donors with a value, not 'event=tcp://h:2'"),
        ("http://h:1;events=http://h:2", "is not a valid address"),
        ("http://h:1;name=a;name=b", "'name' is given twice"),
    ],
)
def test_a_misspelt_replica_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_replica(text)


def test_two_replicas_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two replicas are named 'h:1'"):
        parse_replicas(["http://h:1", "http://h:1"])


def test_an_invalid_address_is_refused_before_anything_changes() -> None:
    fleet = Fleet()
    fleet.apply([endpoint(1), endpoint(2)])
    for wrong in ("http://a:1;events=tcp://a:0", "http://a:1;events=tcp://*:5557", "http://a:1;donors=tcp://a:0"):
        with pytest.raises(ConfigurationError, match="tcp://"):
            fleet.apply(parse_replicas([wrong, "http://b:1"]))
    assert [each.name for each in fleet] == ["replica-1", "replica-2"]
