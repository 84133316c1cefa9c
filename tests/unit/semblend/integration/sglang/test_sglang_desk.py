from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.semblend.integration.sglang.desks import NAMESPACE, OPEN, Office, Tokens, words

from semblend.contract import DeclineReason, Namespace
from semblend.integration.hints import Hints
from semblend.integration.sglang.desk import MAX_RECORDS, needed_tokens, provenance
from semblend.integration.sglang.options import SglangOptions

DOCUMENT = words(1, 800)
FRONT, TAIL = words(2, 50), words(3, 40)
MOVED = np.concatenate([FRONT, DOCUMENT, TAIL])


def blended(office: Office, rid: str = "r") -> int:
    office.serve_cold("donor", np.concatenate([words(9, 30), DOCUMENT, words(8, 20)]))
    return office.ask(rid, np.concatenate([FRONT, DOCUMENT, TAIL]))


def test_content_of_an_earlier_request_is_claimed_in_whole_pages_with_its_holes() -> None:
    office = Office()
    promised = blended(office)
    plan = office.record("r").plan
    assert plan is not None
    assert promised % office.page == 0
    assert promised == plan.claim_end <= len(FRONT) + len(DOCUMENT)
    assert promised > len(FRONT) + len(DOCUMENT) - office.page
    assert plan.compute[0].start == 0
    assert plan.runs[0].shift == len(FRONT) - 30
    assert needed_tokens(plan)[plan.donor_ids[0]] <= 30 + len(DOCUMENT)


def test_asking_again_costs_no_look_up_and_gives_the_same() -> None:
    office = Office()
    promised = blended(office)
    count = len(office.events)
    assert office.ask("r", np.concatenate([FRONT, DOCUMENT, TAIL])) == promised
    assert len(office.events) == count


def test_what_was_computed_in_another_context_is_never_publishable() -> None:
    office = Office()
    blended(office)
    record = office.record("r")
    assert office.desk.publishable("r", 890) == 890  # nothing was loaded yet
    office.desk.loaded(record)
    assert record.plan is not None
    first = record.plan.runs[0].target_start
    assert record.exact_tokens == first
    assert office.ask("r", record.tokens) == 0, "a request that runs is promised nothing more"
    office.desk.confirmed(record, 1.0, 2.0, recomputed=False)
    assert [office.desk.publishable("r", n) for n in (10, first, 890, 2000)] == [10, first, first, first]
    assert office.kinds("r") == ["lookup_finished", "load_advertised", "materialized"]
    told = provenance(record, "question_or_deviation")
    assert told["outcome"] == "backend_materialized_reuse"
    assert told["reused_tokens"] + told["computed_tokens"] == record.plan.claimed_tokens
    office.desk.cached("r", len(record.tokens), first)
    assert len(office.provider.donors) == 1, "a blended request is no donor"
    office.desk.released("r")
    assert office.desk.known("r") is None
    assert office.kinds("r")[-1] == "materialized", "what was served is not declined"


def test_holes_that_could_not_be_computed_make_it_cold_and_exact() -> None:
    office = Office()
    blended(office)
    record = office.record("r")
    office.desk.loaded(record)
    office.desk.confirmed(record, 1.0, 2.0, recomputed=True)
    assert "materialized" not in office.kinds("r")
    assert office.desk.publishable("r", 900) == 900
    assert provenance(record, "question_or_deviation")["reused_tokens"] == 0


def test_a_donor_the_tree_let_go_of_is_forgotten_and_nothing_is_promised() -> None:
    office = Office()
    office.serve_cold("donor", DOCUMENT)
    office.tree.clear()
    assert office.ask("r", np.concatenate([FRONT, DOCUMENT, TAIL])) == 0
    assert len(office.provider.donors) == 0
    assert office.events[-2].kind == "donor_evicted"


def test_a_donor_that_lost_its_tail_serves_what_is_left() -> None:
    office = Office()
    office.serve_cold("donor", DOCUMENT)
    office.tree["donor"] = office.tree["donor"][:400]
    promised = office.ask("r", np.concatenate([FRONT, DOCUMENT, TAIL]))
    assert 400 - office.page < promised - len(FRONT) <= 400
    assert len(office.provider.donors) == 1


@pytest.mark.parametrize(
    ("hints", "obstacle", "namespace", "reason"),
    [
        (Hints(), "it is an image", NAMESPACE, DeclineReason.UNSUPPORTED_MODE),
        (Hints(reuse=False), "", NAMESPACE, DeclineReason.DISABLED),
        (Hints(), "", Namespace(tenant="other", model="m"), DeclineReason.NO_CANDIDATE),
    ],
)
def test_who_gets_nothing(hints: Hints, obstacle: str, namespace: Namespace, reason: DeclineReason) -> None:
    office = Office()
    office.serve_cold("donor", DOCUMENT)
    tokens = np.concatenate([FRONT, DOCUMENT, TAIL])
    assert office.ask("r", tokens, hints=hints, obstacle=obstacle, namespace=namespace) == 0
    decline = office.record("r").decline
    assert decline is not None
    assert decline.reason is reason
    office.desk.released("r")
    assert office.kinds("r") == ["lookup_finished", "declined"]


def test_a_promise_taken_back_at_admission_leaves_a_cold_request() -> None:
    office = Office()
    blended(office)
    record = office.record("r")
    office.desk.broken(record, DeclineReason.STALE, "gone")
    assert office.desk.publishable("r", 890) == 890
    office.desk.cached("r", len(record.tokens), len(record.tokens))
    office.desk.released("r")
    assert office.kinds("r")[-1] == "declined"


def test_the_input_log_probability_limit_bounds_the_claim() -> None:
    office = Office()
    office.serve_cold("donor", DOCUMENT)
    tokens = np.concatenate([FRONT, DOCUMENT, TAIL])
    assert 0 < office.ask("r", tokens, limit=300) <= 300


def test_a_flush_forgets_donors_and_requests() -> None:
    office = Office()
    blended(office)
    office.desk.reset()
    assert (len(office.desk), len(office.provider.donors)) == (0, 0)
    assert office.ask("r", np.concatenate([FRONT, DOCUMENT, TAIL])) == 0


def test_records_are_bounded_but_those_on_loaded_kv_stay() -> None:
    office = Office()
    blended(office)
    office.desk.loaded(office.record("r"))
    short = words(4, 8)
    for number in range(MAX_RECORDS + 10):
        office.desk.open(f"q{number}", short, NAMESPACE, Hints())
    assert len(office.desk) == MAX_RECORDS
    assert office.desk.known("r") is not None
    assert office.desk.known("q0") is None


def test_a_request_sent_back_to_the_queue_begins_anew_with_what_it_has_generated() -> None:
    office = Office()
    blended(office)
    office.desk.loaded(office.record("r"))
    office.desk.released("r")
    grown = np.concatenate([FRONT, DOCUMENT, TAIL, words(5, 30)])
    assert office.ask("r", grown) > 0
    assert not office.record("r").is_loaded


def test_passages_first_seen_in_a_blended_request_get_a_cold_one_when_they_come_again() -> None:
    office = Office(options=SglangOptions(gates=OPEN, second_sight=True))
    novel = words(6, 900)
    office.serve_cold("donor", DOCUMENT)
    first = np.concatenate([FRONT, DOCUMENT, novel])
    assert office.ask("first", first) > 0
    record = office.record("first")
    office.desk.loaded(record)
    office.desk.confirmed(record, 1.0, 1.0, recomputed=False)
    office.desk.released("first")
    again = np.concatenate([words(7, 40), DOCUMENT, novel])
    assert office.ask("again", again) == 0
    decline = office.record("again").decline
    assert decline is not None
    assert decline.reason is DeclineReason.DONOR_REFRESH
    office.provider.donors.version += 1
    assert office.ask("again", again) == 0, "asked again it stays cold"


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 300), st.integers(0, 120), st.integers(64, 600), st.sampled_from([1, 16, 64]), st.integers(0, 2**16)
)
def test_every_promise_is_token_identical_and_within_the_prompt(
    lead: int, front: int, length: int, page: int, seed: int
) -> None:
    office = Office(page=page)
    body = words(seed, length)
    donor = np.concatenate([words(seed + 1, lead), body, words(seed + 2, 40)])
    office.serve_cold("donor", donor)
    tokens = np.concatenate([words(seed + 3, front), body, words(seed + 4, 30)])
    promised = office.ask("r", tokens)
    plan = office.record("r").plan
    if plan is None:
        assert promised == 0
        return
    assert promised == plan.claim_end < len(tokens)
    assert promised % page == 0
    for run in plan.runs:
        held = donor[run.donor_start : run.donor_start + run.length]
        assert np.array_equal(held, tokens[run.target_start : run.target_end])


class EngineRequest:
    """Of the engine's request the desk knows its id and that it is this one."""

    def __init__(self, rid: str) -> None:
        self.rid = rid


def loaded_office(owner: EngineRequest) -> Office:
    office = Office()
    office.serve_cold("donor", DOCUMENT)
    record = office.desk.open(owner.rid, MOVED, NAMESPACE, Hints(), owner)
    assert record is not None
    assert office.desk.claim(record, 0, len(record.tokens) - 1, "", office.resident) > 0
    office.desk.loaded(record)
    return office


@pytest.mark.parametrize("other", [MOVED, MOVED[:400], words(9, len(MOVED))])
def test_a_second_request_of_the_same_id_neither_gets_nor_frees_what_the_first_has(other: Tokens) -> None:
    first, second = EngineRequest("twice"), EngineRequest("twice")
    office = loaded_office(first)
    assert office.desk.open("twice", other, NAMESPACE, Hints(), second) is None
    assert office.desk.of(second) is None
    record = office.desk.of(first)
    assert record is not None
    assert record.is_loaded
    office.desk.confirmed(record, 1.0, 1.0, recomputed=False)
    assert office.desk.publishable("twice", len(record.tokens)) == record.exact_tokens < len(record.tokens)


def test_of_one_that_is_not_loaded_yet_the_later_request_takes_the_place() -> None:
    office = Office()
    first, second = EngineRequest("twice"), EngineRequest("twice")
    assert office.desk.open("twice", words(1, 300), NAMESPACE, Hints(), first) is not None
    taken = office.desk.open("twice", words(2, 300), NAMESPACE, Hints(), second)
    assert taken is not None
    assert office.desk.of(first) is None
    assert office.desk.of(second) is taken


def test_what_has_holes_is_not_published() -> None:
    owner = EngineRequest("r")
    office = loaded_office(owner)
    record = office.desk.of(owner)
    assert record is not None
    assert office.desk.publishable("r", len(record.tokens)) == record.exact_prefix_tokens
