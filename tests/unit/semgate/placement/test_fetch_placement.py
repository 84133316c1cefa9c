"""Fetching a donor from the fleet's store, going where it is, computing: one unit, and never worse than without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from semgate.placement import Content, Decision, PlacementRequest, Placer, PolicyOptions, Price, ReplicaView

PRICE = Price(10.0, 1.0, source="calibrated")  # a millisecond per token
NO_FETCH = PolicyOptions()


def placer(options: PolicyOptions) -> Placer:
    return Placer("semantic_placement", options=options, price=PRICE, scores_kept=16, clock_s=lambda: 0.0)


def by_slot(*tokens: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(tokens, np.int32)


@st.composite
def fleets(draw: st.DrawFn) -> list[ReplicaView]:
    return [
        ReplicaView(f"r{slot}", slot, "ready", draw(st.integers(0, 20)), draw(st.integers(0, 20_000)))
        for slot in range(draw(st.integers(1, 8)))
    ]


@st.composite
def requests(draw: st.DrawFn) -> PlacementRequest:
    tokens = st.none() | st.lists(st.integers(0, 10_000), max_size=10).map(lambda found: by_slot(*found))
    blocks = st.none() | st.lists(st.integers(0, 300), max_size=10).map(lambda found: by_slot(*found))
    content = draw(st.lists(st.integers(1, 9), max_size=5, unique=True))
    return PlacementRequest(
        prompt_tokens=draw(st.integers(0, 10_000)),
        exact_blocks=draw(blocks),
        donor_tokens=draw(tokens),
        fetchable_tokens=draw(tokens),
        content=tuple(Content(key, 0, 700) for key in content),
        session=draw(st.none() | st.sampled_from(["a", "b"])),
    )


options = st.builds(
    PolicyOptions,
    donor_worth=st.floats(0.0, 1.0),
    gather_worth=st.floats(0.0, 1.0),
    fetch_ms=st.floats(0.0, 500.0),
    fetch_ms_per_token=st.floats(0.0, 2.0),
)


def decided(decision: Decision) -> Decision:
    return replace(decision, decide_us=0.0)


@settings(max_examples=150, deadline=None)
@given(fleet=fleets(), asked=st.lists(requests(), min_size=1, max_size=4), chosen=options)
def test_no_replica_scores_less_than_without_fetches_and_the_choice_is_the_best(
    fleet: list[ReplicaView], asked: list[PlacementRequest], chosen: PolicyOptions
) -> None:
    """Going where the donor is and computing have the scores without fetches; a fetch never makes one worse."""
    place = placer(chosen)
    for request in asked:  # with the histories of those before
        scores = dict(place.explain(request, fleet).scores_ms)
        before = dict(place.explain(replace(request, fetchable_tokens=None), fleet).scores_ms)
        assert all(scores[name] >= before[name] for name in before)
        taken = scores[place.decide(request, fleet).replica]
        assert taken == pytest.approx(max(scores.values()), abs=1e-5)
        assert taken >= max(before.values()) - 1e-5


@settings(max_examples=150, deadline=None)
@given(fleet=fleets(), asked=st.lists(requests(), min_size=1, max_size=6), chosen=options)
def test_without_a_price_or_without_shared_donors_decisions_are_exactly_those_of_before(
    fleet: list[ReplicaView], asked: list[PlacementRequest], chosen: PolicyOptions
) -> None:
    off = replace(chosen, fetch_ms_per_token=None, fetch_ms=0.0)
    reference, without_price, without_donors = placer(off), placer(off), placer(chosen)
    for request in asked:
        bare = replace(request, fetchable_tokens=None)
        expected = decided(reference.decide(bare, fleet))
        assert decided(without_price.decide(request, fleet)) == expected
        assert decided(without_donors.decide(bare, fleet)) == expected


def test_a_cheap_fetch_goes_to_the_free_replica_and_a_dear_one_to_the_holder() -> None:
    fleet = [ReplicaView("holder", 0, "ready", 1, 1_000), ReplicaView("free", 1)]
    request = PlacementRequest(4_000, donor_tokens=by_slot(3_500, 0), fetchable_tokens=by_slot(3_500, 3_500))
    assert placer(NO_FETCH).decide(request, fleet).replica == "holder"
    cheap = placer(PolicyOptions(fetch_ms_per_token=0.05)).decide(request, fleet)
    assert (cheap.replica, cheap.path) == ("free", "semantic_placement")
    assert "fetched from the fleet's store" in cheap.reason
    assert cheap.expected_tokens == int(0.6 * 3_500)  # the rest is the load that it adds
    dear = placer(PolicyOptions(fetch_ms_per_token=0.5)).decide(request, fleet)
    assert (dear.replica, dear.reason) == ("holder", "donors may save 2100 ms")


def test_a_fetch_dearer_than_prefill_is_never_expected() -> None:
    fleet = [ReplicaView("one", 0), ReplicaView("two", 1)]
    request = PlacementRequest(4_000, donor_tokens=by_slot(0, 0), fetchable_tokens=by_slot(3_500, 3_500))
    decision = placer(PolicyOptions(fetch_ms_per_token=0.7)).decide(request, fleet)
    assert (decision.path, decision.expected_tokens) == ("cold_route", 0)


def test_a_fetch_that_adds_little_to_the_own_donors_is_not_expected() -> None:
    fleet = [ReplicaView("one", 0)]
    request = PlacementRequest(4_000, donor_tokens=by_slot(3_400), fetchable_tokens=by_slot(3_500))
    decision = placer(PolicyOptions(fetch_ms_per_token=0.0)).decide(request, fleet)
    assert decision.reason == "donors may save 2040 ms"


@pytest.mark.parametrize("wrong", [{"fetch_ms": -1.0}, {"fetch_ms_per_token": -0.1}])
def test_negative_prices_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="fetch_ms"):
        PolicyOptions(**wrong)  # type: ignore[arg-type]
