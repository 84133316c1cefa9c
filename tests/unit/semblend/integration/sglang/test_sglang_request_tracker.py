from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.semblend.integration.sglang.trackers import NAMESPACE, OPEN, Tokens, TrackerBench, words

from semblend.contract import DeclineReason, DonorEvicted, Namespace
from semblend.integration.core.request_table import MAX_RECORDS
from semblend.integration.hints import Hints
from semblend.integration.sglang.options import SglangOptions
from semblend.integration.sglang.request_tracker import meta_info, needed_tokens

DOCUMENT = words(1, 800)
FRONT, TAIL = words(2, 50), words(3, 40)
MOVED = np.concatenate([FRONT, DOCUMENT, TAIL])


def blended(bench: TrackerBench, rid: str = "r") -> int:
    bench.serve_cold("donor", np.concatenate([words(9, 30), DOCUMENT, words(8, 20)]))
    return bench.ask(rid, np.concatenate([FRONT, DOCUMENT, TAIL]))


def test_content_of_an_earlier_request_is_claimed_in_whole_pages_with_its_holes() -> None:
    bench = TrackerBench()
    promised = blended(bench)
    plan = bench.record("r").plan
    assert plan is not None
    assert promised % bench.page == 0
    assert promised == plan.claim_end <= len(FRONT) + len(DOCUMENT)
    assert promised > len(FRONT) + len(DOCUMENT) - bench.page
    assert plan.compute[0].start == 0
    assert plan.runs[0].shift == len(FRONT) - 30
    assert needed_tokens(plan)[plan.donor_ids[0]] <= 30 + len(DOCUMENT)


def test_asking_again_costs_no_look_up_and_gives_the_same() -> None:
    bench = TrackerBench()
    promised = blended(bench)
    count = len(bench.events)
    assert bench.ask("r", np.concatenate([FRONT, DOCUMENT, TAIL])) == promised
    assert len(bench.events) == count


def test_what_was_computed_in_another_context_is_never_publishable() -> None:
    bench = TrackerBench()
    blended(bench)
    record = bench.record("r")
    assert bench.tracker.publishable("r", 890) == 890  # nothing was loaded yet
    bench.tracker.loaded(record)
    assert record.plan is not None
    first = record.plan.runs[0].target_start
    assert record.exact_tokens == first
    assert bench.ask("r", record.tokens) == 0, "a request that runs is promised nothing more"
    bench.tracker.confirmed(record, 1.0, 2.0)
    assert [bench.tracker.publishable("r", n) for n in (10, first, 890, 2000)] == [10, first, first, first]
    assert bench.kinds("r") == ["lookup_finished", "load_advertised", "materialized"]
    info = meta_info(record)
    assert info["outcome"] == "backend_materialized_reuse"
    assert info["reused_tokens"] + info["computed_tokens"] == record.plan.claimed_tokens
    bench.tracker.cached("r", len(record.tokens), first)
    assert len(bench.provider.donors) == 1, "a blended request is not a donor"
    bench.tracker.released("r")
    assert bench.tracker.known("r") is None
    assert bench.kinds("r")[-1] == "materialized", "what was served is not declined"


def test_holes_that_could_not_be_computed_make_it_cold_and_exact() -> None:
    bench = TrackerBench()
    blended(bench)
    record = bench.record("r")
    bench.tracker.loaded(record)
    bench.tracker.computed_whole(record, "wrong keys")
    assert "materialized" not in bench.kinds("r")
    assert bench.tracker.publishable("r", 900) == 900
    assert meta_info(record)["reused_tokens"] == 0


def test_a_donor_the_tree_let_go_of_is_forgotten_and_nothing_is_promised() -> None:
    bench = TrackerBench()
    bench.serve_cold("donor", DOCUMENT)
    bench.tree.clear()
    assert bench.ask("r", np.concatenate([FRONT, DOCUMENT, TAIL])) == 0
    assert len(bench.provider.donors) == 0
    assert isinstance(bench.events[-2], DonorEvicted)


def test_a_donor_that_lost_its_tail_serves_what_is_left() -> None:
    bench = TrackerBench()
    bench.serve_cold("donor", DOCUMENT)
    bench.tree["donor"] = bench.tree["donor"][:400]
    promised = bench.ask("r", np.concatenate([FRONT, DOCUMENT, TAIL]))
    assert 400 - bench.page < promised - len(FRONT) <= 400
    assert len(bench.provider.donors) == 1


@pytest.mark.parametrize(
    ("hints", "obstacle", "namespace", "reason"),
    [
        (Hints(), "it is an image", NAMESPACE, DeclineReason.UNSUPPORTED_MODE),
        (Hints(reuse=False), "", NAMESPACE, DeclineReason.DISABLED),
        (Hints(), "", Namespace(tenant="other", model="m"), DeclineReason.NO_CANDIDATE),
    ],
)
def test_who_gets_nothing(hints: Hints, obstacle: str, namespace: Namespace, reason: DeclineReason) -> None:
    bench = TrackerBench()
    bench.serve_cold("donor", DOCUMENT)
    tokens = np.concatenate([FRONT, DOCUMENT, TAIL])
    assert bench.ask("r", tokens, hints=hints, obstacle=obstacle, namespace=namespace) == 0
    decline = bench.record("r").decline
    assert decline is not None
    assert decline.reason is reason
    bench.tracker.released("r")
    assert bench.kinds("r") == ["lookup_finished", "declined"]


def test_a_promise_taken_back_at_admission_leaves_a_cold_request() -> None:
    bench = TrackerBench()
    blended(bench)
    record = bench.record("r")
    bench.tracker.withdrawn(record, DeclineReason.STALE, "gone")
    assert bench.tracker.publishable("r", 890) == 890
    bench.tracker.cached("r", len(record.tokens), len(record.tokens))
    bench.tracker.released("r")
    assert bench.kinds("r")[-1] == "declined"


def test_the_input_log_probability_limit_bounds_the_claim() -> None:
    bench = TrackerBench()
    bench.serve_cold("donor", DOCUMENT)
    tokens = np.concatenate([FRONT, DOCUMENT, TAIL])
    assert 0 < bench.ask("r", tokens, limit=300) <= 300


def test_a_flush_forgets_donors_and_requests() -> None:
    bench = TrackerBench()
    blended(bench)
    bench.tracker.reset()
    assert (len(bench.tracker), len(bench.provider.donors)) == (0, 0)
    assert bench.ask("r", np.concatenate([FRONT, DOCUMENT, TAIL])) == 0


def test_records_are_bounded_but_those_on_loaded_kv_stay() -> None:
    bench = TrackerBench()
    blended(bench)
    bench.tracker.loaded(bench.record("r"))
    short = words(4, 8)
    for number in range(MAX_RECORDS + 10):
        bench.tracker.open(f"q{number}", short, NAMESPACE, Hints())
    assert len(bench.tracker) == MAX_RECORDS
    assert bench.tracker.known("r") is not None
    assert bench.tracker.known("q0") is None


def test_a_request_sent_back_to_the_queue_begins_again_with_what_it_has_generated() -> None:
    bench = TrackerBench()
    blended(bench)
    bench.tracker.loaded(bench.record("r"))
    bench.tracker.released("r")
    grown = np.concatenate([FRONT, DOCUMENT, TAIL, words(5, 30)])
    assert bench.ask("r", grown) > 0
    assert not bench.record("r").is_accepted


def test_passages_first_seen_in_a_blended_request_get_a_cold_one_when_they_are_repeated() -> None:
    bench = TrackerBench(options=SglangOptions(gates=OPEN, refresh_on_repeat=True))
    novel = words(6, 900)
    bench.serve_cold("donor", DOCUMENT)
    first = np.concatenate([FRONT, DOCUMENT, novel])
    assert bench.ask("first", first) > 0
    record = bench.record("first")
    bench.tracker.loaded(record)
    bench.tracker.confirmed(record, 1.0, 1.0)
    bench.tracker.released("first")
    again = np.concatenate([words(7, 40), DOCUMENT, novel])
    assert bench.ask("again", again) == 0
    decline = bench.record("again").decline
    assert decline is not None
    assert decline.reason is DeclineReason.DONOR_REFRESH
    bench.provider.donors._findable.version += 1
    assert bench.ask("again", again) == 0, "asked again it stays cold"


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 300), st.integers(0, 120), st.integers(64, 600), st.sampled_from([1, 16, 64]), st.integers(0, 2**16)
)
def test_every_promise_is_token_identical_and_within_the_prompt(
    lead: int, front: int, length: int, page: int, seed: int
) -> None:
    bench = TrackerBench(page=page)
    body = words(seed, length)
    donor = np.concatenate([words(seed + 1, lead), body, words(seed + 2, 40)])
    bench.serve_cold("donor", donor)
    tokens = np.concatenate([words(seed + 3, front), body, words(seed + 4, 30)])
    promised = bench.ask("r", tokens)
    plan = bench.record("r").plan
    if plan is None:
        assert promised == 0
        return
    assert promised == plan.claim_end < len(tokens)
    assert promised % page == 0
    for run in plan.runs:
        held = donor[run.donor_start : run.donor_start + run.length]
        assert np.array_equal(held, tokens[run.target_start : run.target_end])


class EngineRequest:
    """Of the engine's request the tracker knows its id and that it is this one."""

    def __init__(self, rid: str) -> None:
        self.rid = rid


def loaded_bench(owner: EngineRequest) -> TrackerBench:
    bench = TrackerBench()
    bench.serve_cold("donor", DOCUMENT)
    record = bench.tracker.open(owner.rid, MOVED, NAMESPACE, Hints(), owner)
    assert record is not None
    assert bench.tracker.claim(record, 0, len(record.tokens) - 1, "", bench.resident) > 0
    bench.tracker.loaded(record)
    return bench


@pytest.mark.parametrize("other", [MOVED, MOVED[:400], words(9, len(MOVED))])
def test_a_second_request_of_the_same_id_neither_gets_nor_frees_what_the_first_has(other: Tokens) -> None:
    first, second = EngineRequest("twice"), EngineRequest("twice")
    bench = loaded_bench(first)
    assert bench.tracker.open("twice", other, NAMESPACE, Hints(), second) is None
    assert bench.tracker.of(second) is None
    record = bench.tracker.of(first)
    assert record is not None
    assert record.is_accepted
    bench.tracker.confirmed(record, 1.0, 1.0)
    assert bench.tracker.publishable("twice", len(record.tokens)) == record.exact_tokens < len(record.tokens)


def test_of_one_that_is_not_loaded_yet_the_later_request_takes_the_place() -> None:
    bench = TrackerBench()
    first, second = EngineRequest("twice"), EngineRequest("twice")
    assert bench.tracker.open("twice", words(1, 300), NAMESPACE, Hints(), first) is not None
    taken = bench.tracker.open("twice", words(2, 300), NAMESPACE, Hints(), second)
    assert taken is not None
    assert bench.tracker.of(first) is None
    assert bench.tracker.of(second) is taken


def test_what_has_holes_is_not_published() -> None:
    owner = EngineRequest("r")
    bench = loaded_bench(owner)
    record = bench.tracker.of(owner)
    assert record is not None
    assert bench.tracker.publishable("r", len(record.tokens)) == record.exact_prefix_tokens
