"""The rules of the architecture page as tests, the same for every adapter. What is not loaded is declined."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.adapter import Answer, Driver, Shape, text
from tests.conformance.drivers import DRIVERS, HISTORY_DRIVERS, open_driver

from semblend.contract import (
    Declined,
    DeclineReason,
    EventLine,
    FaultContained,
    LookupFinished,
    Materialized,
    decode_line,
    encode_line,
)

DOCUMENT = text(1, 400)
REASONS = {reason.value for reason in DeclineReason}


def donate_and_ask(adapter: Driver, shape: Shape, salt: str | None = None) -> tuple[list[int], Answer]:
    """The document becomes a donor; then a request that holds it, behind another text or as its prefix."""
    adapter.serve(DOCUMENT + text(2, 24), salt)
    if shape == "prefix":
        adapter.forget_exact()
        tokens = DOCUMENT + text(3, 40)
    else:
        tokens = text(4, 48) + DOCUMENT + text(3, 40)
    return tokens, adapter.serve(tokens, salt)


def check_promise(adapter: Driver, tokens: list[int], answer: Answer) -> None:
    """Rules 1, 2, 5: token identity, a partition, at least one token left to the engine."""
    end = answer.boundary + answer.promised
    assert end < len(tokens)
    position = answer.boundary
    for run in sorted(answer.runs, key=lambda run: run.target_start):
        assert position <= run.target_start, "runs overlap, or begin inside the exact prefix"
        position = run.target_end
        donor = adapter.donor_tokens(run.donor_id)
        assert list(donor[run.donor_start : run.donor_start + run.length]) == tokens[run.target_start : position]
    assert position <= end
    assert answer.loaded + answer.computed == answer.promised


@pytest.mark.parametrize("shape", ["prefix", "moved"])
def test_content_is_loaded_as_promised_or_declined_with_a_reason(adapter: Driver, shape: Shape) -> None:
    tokens, answer = donate_and_ask(adapter, shape)
    if shape in adapter.loads:
        assert answer.promised > 0
        assert answer.loaded >= 300
        check_promise(adapter, tokens, answer)
        assert answer.confirmed == answer.loaded
    else:
        assert answer.promised == 0
        assert not answer.runs
        assert answer.confirmed is None
        assert answer.found or answer.reason in REASONS


def test_what_an_adapter_cannot_load_it_can_still_find(adapter: Driver) -> None:
    found = [donate_and_ask(adapter, "moved")[1]]
    assert any(answer.found for answer in found)


def test_the_engines_own_prefix_comes_first(adapter: Driver) -> None:
    adapter.serve(DOCUMENT + text(2, 24))
    adapter.serve(text(5, 48) + text(6, 200))
    tokens = DOCUMENT + text(7, 40)
    answer = adapter.serve(tokens)
    assert answer.boundary >= 300, "the engine holds the document"
    check_promise(adapter, tokens, answer)
    assert all(run.target_start >= answer.boundary for run in answer.runs)


def test_an_identical_prompt_is_the_engines_alone(adapter: Driver) -> None:
    tokens = DOCUMENT + text(2, 24)
    adapter.serve(tokens)
    again = adapter.serve(tokens)
    assert again.promised == 0
    assert again.boundary >= 300


def test_a_token_that_differs_is_never_loaded(adapter: Driver) -> None:
    adapter.serve(DOCUMENT + text(2, 24))
    changed = list(DOCUMENT)
    changed[200] = 3 if changed[200] != 3 else 4
    tokens = text(4, 48) + changed + text(3, 40)
    answer = adapter.serve(tokens)
    check_promise(adapter, tokens, answer)
    assert all(not run.target_start <= 248 < run.target_end for run in answer.runs)


def test_text_of_its_own_is_cold_prefill(adapter: Driver) -> None:
    adapter.serve(DOCUMENT)
    answer = adapter.serve(text(50, 400))
    assert (answer.promised, answer.found) == (0, False)
    assert answer.reason == DeclineReason.NO_CANDIDATE


def test_kv_of_another_context_never_becomes_public(adapter: Driver) -> None:
    """Asked again, the engine's exact cache shows what it was given; cold prefill is public, loaded KV is not."""
    tokens, answer = donate_and_ask(adapter, "moved")
    again = adapter.serve(tokens)
    if "moved" in adapter.loads:
        assert again.boundary <= answer.public_until
    else:
        assert again.boundary >= 300


@pytest.mark.parametrize(("owner", "stranger"), [("a", "b"), ("a", None), (None, "a"), ("", None), (None, "")])
def test_tenants_never_meet(adapter: Driver, owner: str | None, stranger: str | None) -> None:
    donate_and_ask(adapter, "moved", owner)
    answer = adapter.serve(text(8, 48) + DOCUMENT + text(9, 40), stranger)
    assert (answer.promised, answer.found, answer.boundary) == (0, False, 0)
    assert answer.reason == DeclineReason.NO_CANDIDATE
    own = adapter.serve(text(10, 48) + DOCUMENT + text(11, 40), owner)
    assert own.found, "the owner still finds it"


@pytest.mark.parametrize("name", DRIVERS)
def test_a_tenant_that_is_not_known_gets_nothing(name: str, tmp_path: Path) -> None:
    driver = open_driver(name, tmp_path, require_salt=True)
    if isinstance(driver, str):
        pytest.skip(driver)
    try:
        driver.serve(DOCUMENT, "a")
        answer = driver.serve(text(4, 48) + DOCUMENT + text(3, 40), None)
        assert (answer.promised, answer.reason) == (0, DeclineReason.NAMESPACE_UNKNOWN)
    finally:
        driver.close()


@pytest.mark.parametrize("name", DRIVERS)
def test_switched_off_it_does_nothing(name: str, tmp_path: Path) -> None:
    driver = open_driver(name, tmp_path, enabled=False)
    if isinstance(driver, str):
        pytest.skip(driver)
    try:
        driver.serve(DOCUMENT)
        answer = driver.serve(text(4, 48) + DOCUMENT + text(3, 40))
        assert (answer.promised, answer.found, answer.reason) == (0, False, DeclineReason.DISABLED)
    finally:
        driver.close()


def test_a_fault_of_ours_is_cold_prefill_and_an_event(adapter: Driver) -> None:
    if not adapter.tells_runs:
        pytest.skip("no fault can be put into a running server")
    donate_and_ask(adapter, "moved")
    adapter.break_look_up(True)
    answer = adapter.serve(text(12, 48) + DOCUMENT + text(13, 40))
    assert (answer.promised, answer.runs) == (0, ())
    faults = [event for event in adapter.events() if isinstance(event, FaultContained)]
    assert any("broken on purpose" in fault.error for fault in faults)
    adapter.break_look_up(False)
    assert adapter.serve(text(14, 48) + DOCUMENT + text(15, 40)).found, "the next request is served as before"


def test_forgotten_donors_are_never_used(adapter: Driver) -> None:
    adapter.serve(DOCUMENT + text(2, 24))
    adapter.forget_donors()
    answer = adapter.serve(text(4, 48) + DOCUMENT + text(3, 40))
    assert (answer.promised, answer.found) == (0, False)


def test_every_event_is_of_the_contract_and_counts_only_what_was_confirmed(adapter: Driver) -> None:
    tokens, answer = donate_and_ask(adapter, "moved")
    adapter.serve(text(50, 400))
    events = adapter.events()
    for number, event in enumerate(events):
        line = EventLine(event, adapter.name, number, 1.0)
        assert decode_line(encode_line(line)) == line
        if isinstance(event, Declined):
            assert event.reason in REASONS
        if isinstance(event, LookupFinished):
            assert event.decline_reason is None or event.decline_reason in REASONS
    reused = sum(event.reused_tokens for event in events if isinstance(event, Materialized))
    confirmed = answer.confirmed or 0
    if events:  # the look-up alone writes none; its scheduler does
        assert reused == confirmed
    assert len(tokens) > confirmed


@pytest.mark.parametrize("name", HISTORY_DRIVERS)
@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60), st.integers(20, 150)), min_size=1, max_size=3),
        min_size=2,
        max_size=5,
    )
)
def test_any_history_keeps_every_promise(
    name: str, tmp_path_factory: pytest.TempPathFactory, prompts: list[list[tuple[int, int, int]]]
) -> None:
    """Prompts put together from shared texts: whatever is claimed is token-identical, a partition and reasoned."""
    driver = open_driver(name, tmp_path_factory.mktemp("history"))
    if isinstance(driver, str):
        pytest.skip(driver)
    try:
        for parts in prompts:
            tokens = [token for seed, start, length in parts for token in text(seed, 220)[start : start + length]]
            tokens.append(7)
            answer = driver.serve(tokens)
            check_promise(driver, tokens, answer)
            assert answer.promised or answer.found or answer.reason in REASONS
    finally:
        driver.close()
