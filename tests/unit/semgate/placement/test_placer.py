from __future__ import annotations

import numpy as np
import pytest

from sembase.errors import ConfigurationError
from semgate.placement import NoUsableReplicaError, Observed, PlacementRequest, Placer, Price, ReplicaView, SessionHomes
from semgate.placement.case import Case, Choice
from semgate.placement.evidence import SESSION_HOME
from semgate.placement.policy.interface import Needs, Stateless

FLEET = [ReplicaView("busy", 0, "ready", 9, 9_000), ReplicaView("idle", 1), ReplicaView("middle", 2, "ready", 3, 900)]


class Broken(Stateless):
    name = "broken"

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def choose(self, case: Case) -> Choice:
        raise self._error


class Astray(Stateless):
    name = "astray"

    def choose(self, case: Case) -> Choice:
        return Choice(len(case.candidates), "exact_route", np.zeros(len(case.candidates)), "beyond the end")


class Foreign(Stateless):
    name = "foreign"

    def choose(self, case: Case) -> Choice:
        return Choice(0, "cold_route", np.zeros(len(case.candidates)), "first")


@pytest.mark.parametrize(
    ("policy", "needs"),
    [
        ("round_robin", Needs(tokens="ignored", text="ignored")),
        ("least_loaded", Needs(tokens="ignored", text="ignored")),
        ("prefix_hash", Needs(tokens="used", text="fallback")),
        ("semantic_locality", Needs(tokens="ignored", text="used")),
        ("precise_prefix", Needs(tokens="required", text="ignored")),
        ("semantic_placement", Needs(tokens="required", text="used")),
    ],
)
def test_each_policy_says_what_evidence_it_needs(policy: str, needs: Needs) -> None:
    assert Placer(policy).needs == needs


def test_a_third_party_policy_that_says_nothing_gets_all_evidence() -> None:
    assert Placer(Foreign()).needs == Needs(tokens="used", text="used")


@pytest.mark.parametrize("error", [ValueError("canary prompt text"), ZeroDivisionError(), MemoryError(), KeyError("x")])
def test_any_error_of_a_policy_is_least_loaded_with_the_reason(error: Exception) -> None:
    decision = Placer(Broken(error)).decide(PlacementRequest(1_000), FLEET)
    assert decision.replica == "idle"
    assert decision.path == "error_fallback"
    assert type(error).__name__ in decision.reason
    assert "canary" not in decision.reason


def test_a_policy_that_chooses_no_candidate_falls_back_too() -> None:
    decision = Placer(Astray()).decide(PlacementRequest(1_000), FLEET)
    assert (decision.replica, decision.path) == ("idle", "error_fallback")


def test_broken_evidence_is_a_fallback_not_a_crash() -> None:
    request = PlacementRequest(1_000, exact_blocks=np.array([["no", "numbers"]]))
    decision = Placer("precise_prefix").decide(request, FLEET)
    assert (decision.replica, decision.path) == ("idle", "error_fallback")


def test_leaving_is_no_error_of_the_policy() -> None:
    with pytest.raises(KeyboardInterrupt):
        Placer(Broken(KeyboardInterrupt())).decide(PlacementRequest(1_000), FLEET)


def test_an_empty_fleet_says_so() -> None:
    with pytest.raises(NoUsableReplicaError, match="the fleet is empty"):
        Placer("least_loaded").decide(PlacementRequest(1), [])


def test_an_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'precise_prefix'"):
        Placer("precise_prefx")


def test_a_half_open_replica_gets_its_one_trial_and_no_retry() -> None:
    fleet = [*FLEET, ReplicaView("back", 3, "half_open", trial_due=True)]
    trial = Placer("least_loaded").decide(PlacementRequest(1_000), fleet)
    assert (trial.replica, trial.path) == ("back", "cold_route")
    assert "trial" in trial.reason
    retry = Placer("least_loaded").decide(PlacementRequest(1_000, tried=frozenset({"busy"})), fleet)
    assert retry.replica == "idle"


def test_explain_leaves_no_trace_and_scores_every_candidate() -> None:
    fleet = [ReplicaView(f"replica-{slot}", slot) for slot in range(20)]
    placer = Placer("prefix_hash")
    request = PlacementRequest(1_000, keys=np.arange(1, 60, dtype=np.uint64), session="s")
    explained = [placer.explain(request, fleet) for _ in range(3)]
    assert {each.replica for each in explained} == {placer.decide(request, fleet).replica}
    assert len(explained[0].scores_ms) == 20
    assert {each.path for each in explained} == {"cold_route"}
    assert placer.sessions == 1


def test_a_session_goes_home_until_its_home_is_forgotten() -> None:
    now = [0.0]
    placer = Placer("precise_prefix", homes=SessionHomes(keep_s=100.0), clock_s=lambda: now[0])
    fleet = [ReplicaView(f"replica-{slot}", slot) for slot in range(5)]
    first = placer.decide(PlacementRequest(1_000, session="s"), fleet).replica
    again = placer.decide(PlacementRequest(1_500, session="s"), fleet)
    assert (again.replica, again.path, again.reason) == (first, "cold_route", SESSION_HOME)
    assert again.expected_tokens == 1_000
    assert placer.decide(PlacementRequest(1_500, session="s", tenant="other"), fleet).replica != first
    now[0] = 200.0
    assert placer.decide(PlacementRequest(2_000, session="s"), fleet).path == "cold_route"


def test_an_index_is_believed_over_an_old_home() -> None:
    """The blocks of the home may be evicted, and the index says so; only fresh ones may still be unannounced."""
    now = [0.0]
    placer = Placer("precise_prefix", clock_s=lambda: now[0])
    fleet = [ReplicaView(f"replica-{slot}", slot) for slot in range(5)]
    nothing = np.zeros(5, dtype=np.int32)
    placer.decide(PlacementRequest(1_000, session="s", exact_blocks=nothing), fleet)
    now[0] = 1.0
    assert placer.decide(PlacementRequest(1_000, session="s", exact_blocks=nothing), fleet).reason == SESSION_HOME
    now[0] = 4.0
    assert placer.decide(PlacementRequest(1_000, session="s", exact_blocks=nothing), fleet).reason != SESSION_HOME


def test_a_calibrated_price_stays_and_any_other_is_learnt() -> None:
    calibrated = Placer("least_loaded", price=Price(10.0, 0.5, source="calibrated"))
    learning = Placer("least_loaded", price=Price(10.0, 0.5))
    for number in range(64):
        for placer in (calibrated, learning):
            placer.observe(Observed(100 * number, 0, 0, 20.0 + 0.2 * 100 * number))
    assert calibrated.price == Price(10.0, 0.5, source="calibrated")
    assert learning.price.ms_per_token == pytest.approx(0.2, rel=0.01)
    assert learning.price.source == "learnt"
