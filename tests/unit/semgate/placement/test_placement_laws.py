"""The laws every policy keeps, whatever the fleet and the request."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semgate.placement import (
    POLICIES,
    Content,
    NoUsableReplicaError,
    PlacementRequest,
    Placer,
    ReplicaState,
    ReplicaView,
)

NAMES = ("round_robin", "least_loaded", "prefix_hash", "semantic_locality", "precise_prefix", "semantic_placement")
CACHE_AWARE = NAMES[2:]
policies = pytest.mark.parametrize("policy", NAMES)
states = st.sampled_from(get_args(ReplicaState))


@st.composite
def fleets(draw: st.DrawFn) -> list[ReplicaView]:
    count = draw(st.integers(1, 12))
    return [
        ReplicaView(
            f"replica-{slot}",
            slot,
            draw(states),
            draw(st.integers(0, 50)),
            draw(st.integers(0, 100_000)),
        )
        for slot in range(count)
    ]


@st.composite
def requests(draw: st.DrawFn) -> PlacementRequest:
    keys = np.array(draw(st.lists(st.integers(1, 2**64 - 1), max_size=40)), dtype=np.uint64)
    evidence = st.none() | st.lists(st.integers(0, 40), max_size=14).map(lambda held: np.array(held, dtype=np.int32))
    return PlacementRequest(
        prompt_tokens=draw(st.integers(0, 50_000)),
        keys=keys,
        exact_blocks=draw(evidence),
        expected_blocks=draw(evidence),
        donor_tokens=draw(evidence),
        content=tuple(Content(int(key), int(key) % 8, 50) for key in keys[:10]),
        session=draw(st.none() | st.sampled_from(["a", "b"])),
    )


def unlike(number: int, tokens: int = 2_000) -> PlacementRequest:
    """Shares nothing with any other number."""
    keys = np.arange(1, 101, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(number * 7_919)
    content = tuple(Content(int(key), 6, 50) for key in keys[:4])
    return PlacementRequest(tokens, keys=keys, exact_blocks=np.zeros(64, dtype=np.int32), content=content)


@policies
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_draining_is_never_chosen_open_comes_last_and_last_resorts_say_so(policy: str, data: st.DataObject) -> None:
    fleet, placer = data.draw(fleets()), Placer(policy)
    for _ in range(3):
        request = data.draw(requests())
        by_state = Counter(each.state for each in fleet)
        if not any(by_state[state] for state in ("ready", "half_open", "unhealthy", "open")):
            with pytest.raises(NoUsableReplicaError, match="no replica can take the request"):
                placer.decide(request, fleet)
            continue
        decision = placer.decide(request, fleet)
        state = next(each.state for each in fleet if each.name == decision.replica)
        best = next(each for each in ("ready", "half_open", "unhealthy", "open") if by_state[each])
        assert state == best
        assert (decision.path == "error_fallback") == (best != "ready"), decision.reason
        if best != "ready":
            assert "no replica is ready" in decision.reason


@policies
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_scores_are_reported_best_first_with_the_chosen_one_among_them(policy: str, data: st.DataObject) -> None:
    fleet = [replace(each, state="ready") for each in data.draw(fleets())]
    decision = Placer(policy).decide(data.draw(requests()), fleet)
    scores = [score for _, score in decision.scores_ms]
    ranked = scores if decision.scores_ms[-1][0] != decision.replica else scores[:-1]
    assert ranked == sorted(ranked, reverse=True)
    assert decision.replica in dict(decision.scores_ms)
    assert decision.path != "error_fallback", decision.reason
    assert len(decision.scores_ms) <= 8


@pytest.mark.parametrize("policy", CACHE_AWARE)
def test_equal_loads_without_locality_are_served_in_turn_like_least_loaded(policy: str) -> None:
    fleet = [ReplicaView(f"replica-{slot}", slot) for slot in range(7)]
    aware, plain = Placer(policy), Placer("least_loaded")
    chosen = [aware.decide(unlike(number), fleet).replica for number in range(70)]
    assert chosen == [plain.decide(unlike(number), fleet).replica for number in range(70)]
    assert set(Counter(chosen).values()) == {10}


@pytest.mark.parametrize("policy", CACHE_AWARE)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_without_locality_every_cache_aware_policy_is_least_loaded(policy: str, data: st.DataObject) -> None:
    """Not only within 3 %: the very same decisions, under any loads."""
    aware, plain = Placer(policy), Placer("least_loaded")
    for number in range(20):
        fleet = [replace(each, state="ready") for each in data.draw(fleets())]
        assert aware.decide(unlike(number), fleet).replica == plain.decide(unlike(number), fleet).replica


@policies
def test_no_replica_starves_when_one_prefix_is_all_there_is(policy: str) -> None:
    """Every request wants the same replica; as its queue grows, all the others get their share."""
    placer, count = Placer(policy), 8
    queued, in_flight = [0] * count, [0] * count
    chosen: Counter[str] = Counter()
    held = np.zeros(count, dtype=np.int32)
    held[3] = 100
    keys = np.arange(1, 101, dtype=np.uint64)
    request = PlacementRequest(2_000, keys=keys, exact_blocks=held, donor_tokens=held)
    for _ in range(400):
        fleet = [ReplicaView(f"replica-{slot}", slot, "ready", in_flight[slot], queued[slot]) for slot in range(count)]
        decision = placer.decide(request, fleet)
        chosen[decision.replica] += 1
        in_flight[int(decision.replica[-1])] += 1
        queued[int(decision.replica[-1])] += request.prompt_tokens - decision.expected_tokens
    assert len(chosen) == count
    assert min(chosen.values()) >= 10


@policies
def test_a_replica_that_failed_the_request_is_not_asked_again(policy: str) -> None:
    fleet = [ReplicaView(f"replica-{slot}", slot) for slot in range(3)]
    placer, tried = Placer(policy), frozenset({"replica-0", "replica-2"})
    assert placer.decide(replace(unlike(1), tried=tried), fleet).replica == "replica-1"
    with pytest.raises(NoUsableReplicaError, match="3 already tried"):
        placer.decide(replace(unlike(1), tried=frozenset(each.name for each in fleet)), fleet)


def test_every_policy_of_the_promise_is_registered() -> None:
    assert set(NAMES) <= set(POLICIES.names())
