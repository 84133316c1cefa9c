from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from sembase.labels import LABELS
from semgate.placement import Content, PlacementRequest, Placer, PolicyOptions, Price, ReplicaView
from semgate.placement.policy.prefix_hash import PrefixHash
from semgate.placement.policy.semantic_locality import WEIGHTS, SemanticLocality

PRICE = Price(80.0, 0.1, ms_per_stream=0.0, source="calibrated")


def views(*queued: int) -> list[ReplicaView]:
    return [ReplicaView(f"replica-{slot}", slot, "ready", 0, tokens) for slot, tokens in enumerate(queued)]


def held(*blocks: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return np.array(blocks, dtype=np.int32)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 20_000)), min_size=1, max_size=12),
    st.integers(0, 5_000),
)
def test_precise_prefix_takes_the_least_predicted_time(fleet: list[tuple[int, int]], prompt: int) -> None:
    """Oracle: wait plus the prefill of what is not cached, for each replica by hand."""
    blocks, queued = zip(*fleet, strict=True)
    request = PlacementRequest(prompt, exact_blocks=held(*blocks))
    decision = Placer("precise_prefix", price=PRICE).decide(request, views(*queued))
    took = [
        0.1 * tokens + 0.1 * (prompt - min(16 * count, max(prompt - 1, 0)))
        for count, tokens in zip(blocks, queued, strict=True)
    ]
    assert took[int(decision.replica.split("-")[1])] == pytest.approx(min(took), abs=1e-3)


def test_a_queue_longer_than_the_prefix_is_worth_sends_it_elsewhere() -> None:
    placer = Placer("precise_prefix", price=PRICE)
    request = PlacementRequest(2_000, exact_blocks=held(100, 0))
    near = placer.decide(request, views(1_500, 0))
    assert (near.replica, near.path, near.expected_tokens) == ("replica-0", "exact_route", 1_600)
    assert near.exact_blocks == 100
    far = placer.decide(request, views(1_700, 0))
    assert (far.replica, far.path, far.exact_blocks) == ("replica-1", "cold_route", 0)
    assert "outweigh" in far.reason


def test_what_the_head_of_a_queue_has_done_is_not_waited_for() -> None:
    """1,000 tokens at 0.1 ms, at the front for 60 ms: 40 ms are left."""
    now = 5.0
    half_done = ReplicaView("half-done", 0, "ready", 1, 1_000, head_prefill_tokens=1_000, head_since_s=now - 0.060)
    fresh = ReplicaView("fresh", 1, "ready", 1, 500, head_prefill_tokens=500, head_since_s=now)
    decision = Placer("least_loaded", price=PRICE, clock_s=lambda: now).decide(PlacementRequest(10), [half_done, fresh])
    assert dict(decision.scores_ms) == pytest.approx({"half-done": -40.0, "fresh": -50.0})


def test_routing_history_counts_where_announcements_are_missing() -> None:
    request = PlacementRequest(2_000, exact_blocks=held(0, 10), expected_blocks=held(50, 0))
    decision = Placer("precise_prefix", price=PRICE).decide(request, views(0, 0))
    assert (decision.replica, decision.exact_blocks) == ("replica-0", 50)


def test_a_slot_the_index_does_not_know_yet_holds_nothing() -> None:
    decision = Placer("precise_prefix", price=PRICE).decide(
        PlacementRequest(2_000, exact_blocks=held(3)), views(0, 0, 0)
    )
    assert (decision.replica, decision.exact_blocks) == ("replica-0", 3)


def test_donors_decide_and_the_path_says_so() -> None:
    placer = Placer("semantic_placement", price=PRICE)
    nothing = held(0, 0, 0)
    decided = placer.decide(PlacementRequest(2_000, exact_blocks=nothing, donor_tokens=held(0, 0, 900)), views(0, 0, 0))
    assert (decided.replica, decided.path, decided.donor_tokens) == ("replica-2", "semantic_placement", 900)
    assert decided.similarity == pytest.approx(0.45)
    assert decided.expected_tokens == 540
    exact = placer.decide(
        PlacementRequest(2_000, exact_blocks=held(0, 90, 0), donor_tokens=held(0, 500, 900)), views(0, 0, 0)
    )
    assert (exact.replica, exact.path) == ("replica-1", "exact_route")
    cold = placer.decide(PlacementRequest(2_000, exact_blocks=nothing, donor_tokens=nothing), views(0, 0, 0))
    assert (cold.path, cold.similarity) == ("cold_route", 0.0)
    unasked = placer.decide(PlacementRequest(2_000), views(0, 0, 0))
    assert unasked.similarity is None


def test_donors_of_a_busy_replica_do_not_outweigh_its_queue() -> None:
    request = PlacementRequest(2_000, exact_blocks=held(0, 0), donor_tokens=held(900, 0))
    decision = Placer("semantic_placement", price=PRICE).decide(request, views(600, 0))
    assert (decision.replica, decision.path) == ("replica-1", "cold_route")


def test_donors_are_the_path_where_they_are_all_there_is() -> None:
    request = PlacementRequest(2_000, exact_blocks=held(0, 0), donor_tokens=held(900, 0))
    decision = Placer("semantic_placement", price=PRICE).decide(request, views(0, 600))
    assert (decision.replica, decision.path, decision.donor_tokens) == ("replica-0", "semantic_placement", 900)
    assert decision.expected_tokens == 540
    short = PlacementRequest(2_000, exact_blocks=held(0, 0), donor_tokens=held(63, 0))
    assert Placer("semantic_placement", price=PRICE).decide(short, views(0, 0)).path == "cold_route"


def test_what_no_replica_holds_any_more_goes_where_it_went_before_queues_permitting() -> None:
    placer = Placer("semantic_placement", price=PRICE)
    document = (Content(1, 0, 1_000), Content(2, 0, 900))
    first = PlacementRequest(2_000, exact_blocks=held(0, 0), content=document)
    assert placer.decide(first, views(100, 0)).replica == "replica-1"
    again = PlacementRequest(2_000, exact_blocks=held(0, 0), content=(Content(3, 0, 50), *reversed(document)))
    gathered = placer.decide(again, views(0, 100))
    assert (gathered.replica, gathered.path) == ("replica-1", "cold_route")
    assert "similar content was routed there before" in gathered.reason
    assert placer.decide(again, views(0, 1_000)).replica == "replica-0", "a second copy is better than a long queue"
    placer.forget(1)
    assert placer.decide(PlacementRequest(2_000, content=document), views(0, 100)).replica == "replica-0"


def chain(seed: int, blocks: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    return np.random.default_rng(seed).integers(1, 2**63, size=blocks, dtype=np.uint64)


def test_prefix_hash_sends_a_returning_prefix_to_the_same_home() -> None:
    placer = Placer("prefix_hash", price=PRICE)
    fleet = views(*[0] * 16)
    for number in range(300):  # the second of each pair is the first return: they teach that prefixes come back
        placer.decide(PlacementRequest(2_000, keys=chain(number // 2, 100)), fleet)
    homes = [placer.decide(PlacementRequest(2_000, keys=chain(999, 100)), fleet) for _ in range(4)]
    assert len({each.replica for each in homes}) == 1
    assert [each.path for each in homes] == ["cold_route", "exact_route", "exact_route", "exact_route"]


def test_prefix_hash_spreads_a_hot_prefix_over_no_more_than_the_stated_copies() -> None:
    options = PolicyOptions(max_copies=3)
    policy = PrefixHash(options)
    placer, queued = Placer(policy, options=options, price=PRICE), [0] * 16
    chosen: Counter[str] = Counter()
    for _ in range(200):
        decision = placer.decide(PlacementRequest(1_000, keys=chain(1, 16)), views(*queued))
        if decision.path == "exact_route":
            chosen[decision.replica] += 1
            queued[int(decision.replica.split("-")[1])] += 20
    assert len(chosen) == 3


def test_prefix_hash_without_tokens_hashes_the_leading_text() -> None:
    placer, fleet = Placer("prefix_hash", price=PRICE), views(*[0] * 16)
    text = tuple(Content(key, 0, 200) for key in (5, 6, 7))
    for _ in range(300):
        placer.decide(PlacementRequest(600, content=text), fleet)
    assert placer.decide(PlacementRequest(600, content=text), fleet).path == "semantic_placement", (
        "texts are not blocks"
    )
    assert placer.decide(PlacementRequest(600), fleet).reason == "prompt too short to hash"


def content(*labelled: tuple[str, int]) -> tuple[Content, ...]:
    return tuple(Content(key, LABELS.index(label), 500) for label, key in labelled)


def test_semantic_locality_weighs_system_text_over_user_text() -> None:
    options = PolicyOptions()
    placer, fleet = Placer("semantic_locality", price=PRICE), views(0, 0)
    placer.decide(PlacementRequest(1_000, content=content(("system", 1), ("user", 2))), fleet)
    placer.decide(PlacementRequest(1_000, content=content(("user", 3), ("user", 4))), fleet)
    # The system text of the first and, leading, a user text of the second: the heavier one wins.
    drawn = placer.decide(PlacementRequest(1_000, content=content(("system", 1), ("user", 9))), fleet)
    assert (drawn.replica, drawn.path) == ("replica-0", "semantic_placement")
    assert dict(drawn.scores_ms)["replica-0"] == pytest.approx(50.0 * WEIGHTS[0])
    scattered = placer.explain(PlacementRequest(1_000, content=content(("user", 9), ("system", 1))), fleet)
    assert dict(scattered.scores_ms)["replica-0"] >= 50.0 * WEIGHTS[0] * options.scattered_worth
    assert WEIGHTS[LABELS.index("system")] == max(WEIGHTS)
    assert WEIGHTS[LABELS.index("user")] == min(WEIGHTS)


def test_semantic_locality_forgets_a_replica_that_lost_its_cache() -> None:
    placer, fleet = Placer("semantic_locality", price=PRICE), views(0, 0)
    first = placer.decide(PlacementRequest(1_000, content=content(("system", 1))), fleet)
    placer.forget(int(first.replica[-1]))
    assert placer.explain(PlacementRequest(1_000, content=content(("system", 1))), fleet).path == "cold_route"


def test_semantic_locality_never_remembers_more_than_its_bound() -> None:
    options = PolicyOptions(max_contents=100)
    policy = SemanticLocality(options)
    placer, fleet = Placer(policy, price=PRICE), views(0, 0, 0)
    for number in range(500):
        placer.decide(PlacementRequest(1_000, content=content(("user", number), ("system", -number - 1))), fleet)
    assert len(policy._history) == 100


@pytest.mark.parametrize(
    "wrong", [{"leading_blocks": 0}, {"donor_worth": 1.5}, {"announce_lag_s": -1.0}, {"max_copies": 0}]
)
def test_impossible_options_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        PolicyOptions(**wrong)
