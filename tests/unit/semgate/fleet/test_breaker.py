from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from semgate.fleet import Breaker, BreakerOptions, Endpoint, Replica

OPTIONS = BreakerOptions(
    faults_to_open=3, window=10, fault_fraction_to_open=0.5, open_s=2.0, max_open_s=8.0, trial_s=30.0
)


def opened() -> Breaker:
    breaker = Breaker(OPTIONS)
    for _ in range(3):
        breaker.failed(0.0)
    return breaker


def test_faults_in_a_row_open_it_and_a_success_between_does_not() -> None:
    breaker = Breaker(OPTIONS)
    for _ in range(2):
        breaker.failed(0.0)
    breaker.succeeded(0.0)
    for _ in range(2):
        breaker.failed(0.0)
    assert breaker.state(0.0) == "closed"
    breaker.failed(0.0)
    assert breaker.state(0.0) == "open"
    assert breaker.opened == 1


def test_a_flapping_replica_is_opened_by_its_share_of_faults() -> None:
    breaker = Breaker(OPTIONS)
    for _ in range(4):
        breaker.succeeded(0.0)
        breaker.failed(0.0)
    assert breaker.state(0.0) == "closed"  # a share of a handful is chance
    breaker.succeeded(0.0)
    breaker.failed(0.0)
    assert breaker.state(0.0) == "open"


def test_one_trial_decides() -> None:
    breaker = opened()
    assert (breaker.state(1.9), breaker.trial_due(1.9)) == ("open", False)
    assert (breaker.state(2.0), breaker.trial_due(2.0)) == ("half_open", True)
    breaker.began(2.0)
    assert not breaker.trial_due(2.1)
    breaker.succeeded(2.5)
    assert breaker.state(2.5) == "closed"


def test_failed_trials_double_the_time_up_to_the_most() -> None:
    breaker, now = opened(), 0.0
    for open_for in (2.0, 4.0, 8.0, 8.0):
        assert breaker.state(now + open_for - 0.01) == "open"
        now += open_for
        breaker.began(now)
        breaker.failed(now)
    breaker.began(now + 8.0)
    breaker.succeeded(now + 8.0)
    for _ in range(3):
        breaker.failed(now + 9.0)
    assert breaker.state(now + 11.0) == "half_open"  # a closed breaker has forgotten how long it was open


def test_a_trial_that_never_reports_is_given_up() -> None:
    breaker = opened()
    breaker.began(2.0)
    assert not breaker.trial_due(31.9)
    assert breaker.trial_due(32.0)


def test_a_request_from_before_does_not_close_an_open_breaker() -> None:
    breaker = opened()
    breaker.succeeded(1.0)
    assert breaker.state(1.0) == "open"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["ok", "fault", "begin"]), st.floats(0.0, 5.0)), max_size=80))
def test_it_always_comes_back(happened: list[tuple[str, float]]) -> None:
    """Whatever happened, after the longest open time one good trial closes it."""
    breaker, now = Breaker(OPTIONS), 0.0
    for what, later in happened:
        now += later
        {"ok": breaker.succeeded, "fault": breaker.failed, "begin": breaker.began}[what](now)
    now += OPTIONS.max_open_s + OPTIONS.trial_s
    if breaker.state(now) != "closed":
        assert breaker.trial_due(now)
        breaker.began(now)
    breaker.succeeded(now)
    assert breaker.state(now) == "closed"


@pytest.mark.parametrize("wrong", [{"faults_to_open": 0}, {"window": 64}, {"open_s": 0.0}, {"max_open_s": 1.0}])
def test_impossible_breakers_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="a breaker"):
        BreakerOptions(**wrong)


def replica_at(now: list[float]) -> Replica:
    options = BreakerOptions(faults_to_open=1, open_s=2.0)
    return Replica(Endpoint("a", "http://a:1"), 0, options, lambda: now[0])


def test_a_trial_is_passed_when_the_answer_begins() -> None:
    now = [0.0]
    replica = replica_at(now)
    replica.begin(1).end("fault")
    now[0] = 3.0
    trial = replica.begin(1)
    assert replica.state() == "half_open"
    trial.first_token()
    assert replica.state() == "ready", "its end may be minutes away"
    trial.end("ok")
    assert replica.state() == "ready"


def test_a_trial_whose_client_leaves_is_free_for_the_next() -> None:
    now = [0.0]
    replica = replica_at(now)
    replica.begin(1).end("fault")
    now[0] = 3.0
    trial = replica.begin(1)
    assert not replica.view().trial_due
    trial.end("cancelled")
    assert replica.view().trial_due


def test_a_replica_known_to_be_down_gets_no_trial() -> None:
    now = [0.0]
    replica = replica_at(now)
    replica.begin(1).end("fault")
    replica.healthy = False
    assert replica.view().state == "open"
    now[0] = 3.0
    assert replica.view().state == "unhealthy"
    assert not replica.view().trial_due
    replica.healthy = True
    assert replica.view().state == "half_open"


def test_an_answer_from_before_the_breaker_opened_does_not_close_it() -> None:
    now = [0.0]
    replica = replica_at(now)
    old = replica.begin(1)
    now[0] = 1.0
    replica.begin(1).end("fault")
    old.first_token()
    old.end("ok")
    assert replica.state() == "open"
    late = replica.begin(1)  # with every breaker open one is tried all the same
    late.first_token()
    assert replica.state() == "ready"
