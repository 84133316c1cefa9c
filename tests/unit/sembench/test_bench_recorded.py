"""Recorded traffic as pairs: a request's donors are the earlier requests it repeats, and the rest are controls."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.tokenizer import open_tokenizer
from sembench.manifest import WorkloadItem
from sembench.workload.build import build_items
from sembench.workload.record import SourceRecord
from sembench.workload.sources.trace import MAX_DONORS, with_donors
from sembench.workload.transforms import TransformContext
from sembench.workload.transforms.base import TENANT, Skipped
from sembench.workload.transforms.negative_control import negative_control
from sembench.workload.transforms.recorded import recorded

TOKENIZER = open_tokenizer(None)
MIN_TOKENS = 64


def passage(number: int, words: int = 90) -> str:
    draws = random.Random(number)
    return " ".join("".join(map(draws.choice, ("abcdefgh", "ijklmnop", "qrstuvwx"))) for _ in range(words))


def request(number: int, text: str, tenant: str | None = "t") -> SourceRecord:
    return SourceRecord(
        "traffic", f"r{number}", text, verbatim=True, metadata={"tenant": tenant, "source_index": number}
    )


def items_of(records: Sequence[SourceRecord]) -> tuple[WorkloadItem, ...]:
    known = tuple(with_donors(records))
    return build_items(known, ("recorded",), TransformContext(known)).items


def shares_a_run(first: str, second: str) -> bool:
    """Brute force: a window of 64 equal tokens at any position."""
    ids = TOKENIZER.ids(first)
    windows = {ids[at : at + MIN_TOKENS].tobytes() for at in range(len(ids) - MIN_TOKENS + 1)}
    other = TOKENIZER.ids(second)
    return any(other[at : at + MIN_TOKENS].tobytes() in windows for at in range(len(other) - MIN_TOKENS + 1))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 4), max_size=3, unique=True)), max_size=8))
def test_donors_are_earlier_requests_of_the_tenant_that_share_a_run(drawn: list[tuple[str, list[int]]]) -> None:
    texts = ["\n\n".join([f"Question {number}?", *map(passage, chosen)]) for number, (_, chosen) in enumerate(drawn)]
    records = [request(number, text, drawn[number][0]) for number, text in enumerate(texts)]
    for number, record in enumerate(with_donors(records)):
        donors = record.metadata["donors"]
        possible = {
            other
            for other in range(number)
            if drawn[other][0] == drawn[number][0] and shares_a_run(texts[other], texts[number])
        }
        assert set(donors) <= possible
        assert bool(donors) == bool(possible)
        assert donors == sorted(donors)


def test_a_request_follows_the_requests_it_repeats() -> None:
    first, second = f"Summarise: {passage(1)}", f"Translate: {passage(2)}"
    both = f"Compare.\n{passage(2)}\n{passage(1)}"
    *_, item = items_of([request(0, first), request(1, second), request(2, both)])
    assert (item.transform, item.recipient_prompt, item.tenant) == ("recorded", both, "t")
    assert [donor.text for donor in item.donor_prompts] == [first, second]
    assert not item.negative_control


def test_at_most_four_donors_those_that_share_most() -> None:
    sizes = [100, 400, 120, 300, 140, 200]
    texts = [f"Request {number}: {passage(number, size)}" for number, size in enumerate(sizes)]
    whole = "\n".join(passage(number, size) for number, size in enumerate(sizes))
    *_, last = with_donors([request(number, text) for number, text in enumerate([*texts, whole])])
    assert last.metadata["donors"] == [1, 3, 4, 5]
    assert len(last.metadata["donors"]) == MAX_DONORS


def test_a_request_that_repeats_nothing_is_a_control_with_a_foreign_donor_as_it_was_sent() -> None:
    first, second, third = (f"Summarise: {passage(number)}" for number in range(3))
    items = items_of([request(0, first), request(1, second), request(2, third)])
    assert [item.transform for item in items] == ["negative_control"] * 3
    assert [item.recipient_prompt for item in items] == [first, second, third]
    for item in items:
        assert item.negative_control
        assert item.donor_prompts[0].text in {first, second, third} - {item.recipient_prompt}


def test_where_all_traffic_shares_text_the_control_is_another_tenant() -> None:
    system = (
        "You answer politely and at length, from the passages alone, and you never guess at what is not said there."
    )
    items = items_of([request(number, f"{system}\n{passage(number)}") for number in range(2)])
    assert {item.transform for item in items} == {"cross_tenant"}
    assert all(item.negative_control and item.donor_prompts[0].text == item.recipient_prompt for item in items)


def test_a_request_without_tenant_gets_one() -> None:
    text = passage(0)
    *_, item = items_of([request(0, text, None), request(1, f"Again: {text}", None)])
    assert item.tenant == TENANT
    assert item.tenant_of_donor(item.donor_prompts[0]) == TENANT


def test_other_records_are_skipped_with_the_command_to_use() -> None:
    outcome = recorded(SourceRecord("d", "s", "text"), TransformContext(()))
    assert isinstance(outcome, Skipped)
    assert "--from-trace" in outcome.reason


@pytest.mark.parametrize("verbatim", [True, False])
def test_a_control_wraps_documents_but_not_prompts(verbatim: bool) -> None:
    record, other = (SourceRecord("d", str(number), passage(number), verbatim=verbatim) for number in range(2))
    item = negative_control(record, TransformContext([record, other]))
    assert isinstance(item, WorkloadItem)
    assert (item.recipient_prompt == record.context) is verbatim
