from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from sembase.errors import ConfigurationError
from semblend.contract import Decline, ReusePlan
from semblend.contract.donor_event import DonorAnnounced, anchor_salts, namespace_digest, tenant_of_salt
from semblend.donors import index as index_module
from semblend.donors.cover import covered_by_all
from semblend.donors.index import DonorIndex, announced_gates
from semblend.fingerprint.anchors import GRAM, select_anchors
from semblend.fingerprint.keyed import keyed_anchors
from semblend.plan.gates import ADAPTER_GATES, Gates, Prompt, decide
from semblend.plan.risk import context_risks

KEY = b"a key for tests only"
Tokens = np.ndarray[Any, np.dtype[np.uint32]]
OPEN = Gates(min_reuse_ratio=0.0)


def text(seed: int, count: int) -> Tokens:
    return np.random.default_rng(seed).integers(0, 50_000, count).astype(np.uint32)


def announced(donor_id: str, tokens: Tokens, salt: str | None = None) -> DonorAnnounced:
    namespace = namespace_digest(KEY, tenant_of_salt(salt), None)
    positions, hashes = select_anchors(tokens)
    keyed = keyed_anchors(hashes, anchor_salts(KEY, namespace))
    return DonorAnnounced(donor_id, namespace, len(tokens), GRAM, keyed.tobytes(), positions.astype("<u4").tobytes())


def slots(*exact: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(exact, np.int32)


def test_a_document_behind_another_head_is_expected_where_its_donor_is() -> None:
    index = DonorIndex(KEY)
    document = text(1, 1_800)
    index.add(1, announced("d", np.concatenate([text(2, 30), document])))
    asked = np.concatenate([text(3, 45), document, text(4, 20)])
    found = index.expected(asked, None, None, slots(0, 0, 0))
    assert found[0] == found[2] == 0
    assert 1_650 <= found[1] <= 1_800
    beyond = index.expected(asked, None, None, slots(0, 500, 0))
    assert 1_250 <= beyond[1] <= 1_345
    assert index.expected(text(9, 1_800), None, None, slots(0, 0, 0)).sum() == 0


def test_donors_of_one_replica_complete_each_other() -> None:
    index = DonorIndex(KEY, gates=OPEN)
    one, two = text(1, 400), text(2, 400)
    index.add(0, announced("a", one))
    index.add(0, announced("b", two))
    index.add(1, announced("a", one))
    found = index.expected(np.concatenate([text(3, 10), one, two]), None, None, slots(0, 0))
    assert found[0] > 650
    assert 300 < found[1] <= 400


def test_a_document_in_a_foreign_context_is_not_expected_to_be_loaded() -> None:
    document = text(1, 300)
    donor = announced("d", document)
    asked = np.concatenate([text(2, 1_200), document, text(3, 10)])
    gated, bare = DonorIndex(KEY), DonorIndex(KEY, gates=OPEN)
    for index in (gated, bare):
        index.add(0, donor)
    assert bare.expected(asked, None, None, slots(0))[0] > 200
    assert gated.expected(asked, None, None, slots(0))[0] == 0


def test_every_replica_counts_by_the_gates_it_announced_and_by_the_fallback_otherwise() -> None:
    document = text(1, 300)
    asked = np.concatenate([text(2, 1_200), document, text(3, 10)])
    index = DonorIndex(KEY)
    for slot in range(4):
        index.add(slot, announced("d", document))
    index.set_gates(1, OPEN)
    index.set_gates(2, Gates(min_reuse_ratio=0.5))
    index.set_gates(3, Gates(min_reuse_ratio=0.0, min_prompt_tokens=5_000))
    found = index.expected(asked, None, None, slots(0, 0, 0, 0))
    assert [bool(tokens) for tokens in found] == [False, True, False, False]
    index.forget(1)
    index.add(1, announced("d", document))
    assert index.gates(1) == ADAPTER_GATES
    assert index.expected(asked, None, None, slots(0, 0))[1] == 0


def test_announced_gates_ignore_unknown_names_and_refuse_impossible_values() -> None:
    assert announced_gates({}) == ADAPTER_GATES
    assert announced_gates({"min_run_tokens": 128, "of_a_later_version": 3}) == replace(
        ADAPTER_GATES, min_run_tokens=128
    )
    for bad in ({"min_run_tokens": 0}, {"min_run_tokens": 64.5}, {"max_context_share": 2}):
        with pytest.raises(ConfigurationError):
            announced_gates(bad)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_run_counts_as_the_engines_own_gates_decide(data: st.DataObject) -> None:
    """The law that keeps the router from drifting: same run, same gates, same number of tokens."""
    document = text(1, data.draw(st.integers(130, 400), "document"))
    donor_head, head = data.draw(st.integers(0, 300), "donor head"), data.draw(st.integers(0, 300), "head")
    donor = np.concatenate([text(2, donor_head), document])
    asked = np.concatenate([text(3, head), document])
    gates = Gates(
        min_run_tokens=data.draw(st.integers(32, 300), "run"),
        min_fragment_tokens=data.draw(st.integers(1, 300), "fragment"),
        min_reuse_ratio=data.draw(st.sampled_from([0.0, 0.1, 0.5, 0.9]), "ratio"),
        boundary_recompute_tokens=data.draw(st.integers(0, 100), "boundary"),
        max_context_share=data.draw(st.sampled_from([0.0, 0.2, 0.35, 0.7, 1.0]), "share"),
        min_moved_tokens=data.draw(st.sampled_from([0, 1, 150, 300]), "moved"),
        boundary_multiple_tokens=data.draw(st.sampled_from([1, 16, 50]), "multiple"),
        min_inexact_tokens=data.draw(st.sampled_from([0, 100, 256]), "inexact"),
    )
    index = DonorIndex(KEY)
    index.add(0, announced("d", donor))
    index.set_gates(0, gates)
    found = int(index.expected(asked, None, None, slots(0))[0])
    positions = select_anchors(document).positions
    start, length = int(positions[0]), int(positions[-1] - positions[0]) + GRAM  # the run that anchors show
    plan: ReusePlan | Decline | None = None
    assume(head + start + length < len(asked))  # a planner leaves the last token to the engine
    if length >= gates.min_run_tokens:
        pieces = np.array([[0, donor_head + start, head + start, length, max(donor_head, head) + start]], np.int64)
        risks = context_risks(pieces)
        plan = decide(Prompt(len(asked), 0), pieces, risks, ["d"], gates, strict_prefix_boundary=False)
    runs = plan.runs if isinstance(plan, ReusePlan) else ()
    planned = sum(run.length for run in runs)
    is_exact = any(run.is_exact for run in runs)  # which anchors do not show
    assert found == (planned if not is_exact or planned >= gates.min_inexact_tokens else 0)


def test_tenants_do_not_see_each_others_donors() -> None:
    index = DonorIndex(KEY)
    document = text(1, 900)
    index.add(0, announced("d", document, "acme"))
    assert index.expected(document, "acme", None, slots(0))[0] > 780
    for salt, lora in ((None, None), ("other", None), ("acme", "adapter")):
        assert index.expected(document, salt, lora, slots(0))[0] == 0


def test_a_withdrawn_donor_is_gone_and_one_that_is_unknown_is_no_error() -> None:
    index = DonorIndex(KEY)
    document = text(1, 900)
    index.add(0, announced("d", document))
    index.add(0, announced("d", document))
    assert len(index) == 1
    assert index.remove(0, "d")
    assert not index.remove(0, "d")
    assert index.anchors == len(index) == 0
    assert index.expected(document, None, None, slots(0))[0] == 0


def test_a_replica_or_one_of_its_namespaces_can_be_cleared() -> None:
    index = DonorIndex(KEY)
    index.add(0, announced("a", text(1, 200)))
    index.add(0, announced("b", text(2, 200), "acme"))
    index.add(1, announced("a", text(1, 200)))
    assert index.clear(0, namespace_digest(KEY, tenant_of_salt("acme"), None)) == 1
    assert index.donors(0) == ["a"]
    assert index.clear(0) == 1
    assert index.donors(0) == []
    assert index.donors(1) == ["a"]


def test_the_oldest_donors_leave_when_the_index_is_full() -> None:
    index = DonorIndex(KEY, max_donors=3)
    for number in range(5):
        index.add(0, announced(f"d{number}", text(number, 200)))
    assert index.donors(0) == ["d2", "d3", "d4"]
    assert index.dropped == 2
    small = DonorIndex(KEY, max_anchors=30)
    small.add(0, announced("fits", text(1, 300)))
    small.add(0, announced("too large", text(2, 3_000)))
    assert small.donors(0) == ["fits"]
    assert small.anchors <= 30
    with pytest.raises(ConfigurationError):
        DonorIndex(KEY, max_donors=0)


def test_an_anchor_that_every_donor_holds_costs_a_bounded_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "CROWD", 4)
    index = DonorIndex(KEY, gates=OPEN)
    document = text(1, 300)
    for number in range(20):
        index.add(number % 2, announced(f"d{number}", document))
    assert index.expected(document, None, None, slots(0, 0)).min() > 200
    for number in range(20):
        assert index.remove(number % 2, f"d{number}")
    assert index.anchors == 0
    assert index.expected(document, None, None, slots(0, 0)).sum() == 0


@pytest.mark.parametrize(("length", "copies"), [(41, 4), (55, 3), (80, 3), (81, 2), (170, 2)])
def test_text_repeated_within_a_donor_is_matched_from_its_first_occurrence(length: int, copies: int) -> None:
    index = DonorIndex(KEY, gates=OPEN)
    document = np.concatenate([text(3, length)] * copies)
    index.add(0, announced("d", document))
    assert index.expected(document, None, None, slots(0))[0] >= len(document) - 2 * 33


def brute_force(donors: dict[tuple[int, str], Tokens], asked: Tokens, count: int) -> list[int]:
    """Positions of runs of at least 64 equal tokens, by comparing everything with everything."""
    covered = np.zeros((count, len(asked)), bool)
    for (slot, _), tokens in donors.items():
        for shift in range(-len(asked) + 1, len(tokens)):
            low, high = max(0, -shift), min(len(asked), len(tokens) - shift)
            if high <= low:
                continue
            same = np.concatenate([[False], asked[low:high] == tokens[low + shift : high + shift], [False]])
            edges = np.flatnonzero(same[1:] != same[:-1])
            for start, end in zip(edges[::2], edges[1::2], strict=True):
                if end - start >= 64:
                    covered[slot, low + start : low + end] = True
    return covered.sum(axis=1).tolist()  # type: ignore[no-any-return]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_expected_tokens_lie_between_nothing_and_what_brute_force_finds(data: st.DataObject) -> None:
    pieces = [text(seed, data.draw(st.integers(40, 180), f"piece {seed}")) for seed in range(5)]
    choose = st.lists(st.integers(0, 4), min_size=1, max_size=4)
    index = DonorIndex(KEY, max_donors=8, max_anchors=400, gates=OPEN)
    living: dict[tuple[int, str], Tokens] = {}
    for step in range(data.draw(st.integers(1, 12), "steps")):
        slot, donor_id = data.draw(st.integers(0, 2), "slot"), f"d{data.draw(st.integers(0, 5), 'donor')}"
        if data.draw(st.booleans(), f"removes {step}"):
            assert index.remove(slot, donor_id) is (living.pop((slot, donor_id), None) is not None)
        else:
            tokens = np.concatenate([pieces[i] for i in data.draw(choose, "parts")])
            index.add(slot, announced(donor_id, tokens))
            living[slot, donor_id] = tokens
            kept = {(at, name) for at in range(3) for name in index.donors(at)}
            living = {key: value for key, value in living.items() if key in kept}
    asked = np.concatenate([pieces[i] for i in data.draw(choose, "asked")])
    found = index.expected(asked, None, None, slots(0, 0, 0)).tolist()
    truth = brute_force(living, asked, 3)
    for expected, most in zip(found, truth, strict=True):
        assert expected <= most
    # A run is known between its first and last anchor: at most a window is lost at each end, and only of long runs.
    for (slot, _), tokens in living.items():
        if len(tokens) == len(asked) and (tokens == asked).all() and len(asked) >= 2 * 64 + 33:
            assert found[slot] >= len(asked) - 2 * 33


runs_of_a_look_up = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 120), st.integers(1, 60)).map(
        lambda each: (each[0], each[1], each[1] + each[2], 1)
    ),
    min_size=1,
    max_size=12,
)


@given(runs=runs_of_a_look_up, exact=st.lists(st.integers(0, 200), min_size=1, max_size=5))
def test_runs_of_all_slots_are_counted_once_and_beyond_each_exact_prefix(
    runs: list[tuple[int, int, int, int]], exact: list[int]
) -> None:
    union = {position for _, start, end, _ in runs for position in range(start, end)}
    expected = [sum(position >= held for position in union) for held in exact]
    assert covered_by_all(np.array(runs, np.int32), slots(*exact)).tolist() == expected


def test_a_donor_in_the_fleets_store_can_be_fetched_by_every_replica() -> None:
    index = DonorIndex(KEY)
    document = text(1, 1_800)
    index.add(1, structs.replace(announced("d", document), tier="storage"))
    asked = np.concatenate([text(3, 45), document])
    found = index.usable(asked, None, None, slots(0, 0, 400))
    assert found.fetchable is not None
    assert found.tokens.tolist() == [0, found.fetchable[1], 0]
    assert found.fetchable[0] == found.fetchable[1] >= 1_650
    assert 1_300 <= found.fetchable[2] <= 1_445
    assert index.usable(asked, "another tenant", None, slots(0, 0)).fetchable is None
    assert index.usable(asked, None, None, slots(0, 0), distrusted={1}).fetchable is None
    index.remove(1, "d")
    assert index.usable(asked, None, None, slots(0, 0)).fetchable is None


def test_only_donors_in_a_shared_tier_can_be_fetched_and_a_donor_may_get_there_later() -> None:
    index = DonorIndex(KEY)
    document = text(1, 900)
    index.add(0, announced("d", document))
    before = index.usable(document, None, None, slots(0, 0))
    assert before.fetchable is None
    index.relocate(0, "unknown", "storage")
    index.relocate(0, "d", "storage")
    after = index.usable(document, None, None, slots(0, 0))
    assert after.tokens.tolist() == before.tokens.tolist() == index.expected(document, None, None, slots(0, 0)).tolist()
    assert after.fetchable is not None
    assert after.fetchable[1] == after.tokens[0] > 0
    index.relocate(0, "d", "host")
    assert index.usable(document, None, None, slots(0, 0)).fetchable is None


def test_a_fetch_that_the_gates_of_a_replica_refuse_is_not_expected_there() -> None:
    index = DonorIndex(KEY)
    document = text(1, 900)
    index.add(0, structs.replace(announced("d", document), tier="storage"))
    index.set_gates(1, replace(ADAPTER_GATES, min_prompt_tokens=5_000))
    fetchable = index.usable(document, None, None, slots(0, 0, 0)).fetchable
    assert fetchable is not None
    assert fetchable[1] == 0 < fetchable[2]
