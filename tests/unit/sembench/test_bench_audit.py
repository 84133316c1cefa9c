from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sembase.tokenizer import open_tokenizer
from sembench.audit.manifest import audit_items
from sembench.audit.rules import RULES
from sembench.manifest import DonorPrompt, WorkloadItem


def rules_broken(*items: WorkloadItem) -> set[str]:
    return {violation.rule for violation in audit_items(items, open_tokenizer(None)).violations}


def test_the_fixture_is_clean(fixture_items: tuple[WorkloadItem, ...]) -> None:
    audit = audit_items(fixture_items, open_tokenizer(None))
    assert audit.violations == ()
    assert audit.items == len(fixture_items)
    assert audit.negative_controls == 12


def with_metadata(item: WorkloadItem, **changes: Any) -> WorkloadItem:
    return replace(item, metadata={**item.metadata, **changes})


def with_donor(item: WorkloadItem, **changes: Any) -> WorkloadItem:
    return replace(item, donor_prompts=(replace(item.donor_prompts[0], **changes), *item.donor_prompts[1:]))


def without_second_half(item: WorkloadItem) -> WorkloadItem:
    """What upstream's builder did: keep the head, drop the rest."""
    half = len(item.recipient_prompt) // 2
    return replace(item, recipient_prompt=item.recipient_prompt[:half])


def with_similar_donor(item: WorkloadItem) -> WorkloadItem:
    return with_donor(item, text=item.donor_prompts[0].text + item.recipient_prompt[400:900])


def shifted_edit(item: WorkloadItem) -> WorkloadItem:
    return with_metadata(item, edits=[{"donor": [0, 6], "recipient": [0, 6]}])


MUTATIONS: list[tuple[str, str, Callable[[WorkloadItem], WorkloadItem]]] = [
    ("empty_recipient", "stream", lambda i: replace(i, recipient_prompt=" \n")),
    ("wrong_item_id", "exact_repeat", lambda i: replace(i, source_id="another source")),
    ("missing_donors", "exact_repeat", lambda i: replace(i, donor_prompts=())),
    ("missing_donors", "exact_repeat", lambda i: with_donor(i, text="")),
    ("stream_with_donors", "stream", lambda i: replace(i, donor_prompts=(DonorPrompt("x", "text"),))),
    ("duplicate_donor_id", "multi_donor_composite", lambda i: with_donor(i, donor_id=i.donor_prompts[1].donor_id)),
    ("tenant_missing", "exact_repeat", lambda i: replace(i, metadata={})),
    ("cross_tenant_same_tenant", "cross_tenant", lambda i: with_donor(i, metadata={"tenant": "tenant-a"})),
    ("cross_tenant_same_tenant", "cross_tenant", lambda i: with_donor(i, metadata={})),
    ("cross_tenant_other_text", "cross_tenant", lambda i: with_donor(i, text="other text")),
    ("negative_not_marked", "negative_control", lambda i: replace(i, negative_control=False)),
    ("negative_not_marked", "cross_tenant", lambda i: replace(i, negative_control=False)),
    ("negative_not_marked", "negative_control", lambda i: with_metadata(i, expected_materialize=True)),
    ("negative_shares_run", "negative_control", with_similar_donor),
    (
        "answer_dropped",
        "rag_reorder",
        lambda i: replace(i, recipient_prompt=i.recipient_prompt.replace(i.answers[0], "X")),
    ),
    ("answer_dropped", "exact_repeat", without_second_half),
    ("segment_dropped", "exact_repeat", without_second_half),
    ("segment_dropped", "multi_donor_composite", without_second_half),
    ("segment_dropped", "same_evidence_new_task", without_second_half),
    ("segment_count_wrong", "multi_donor_composite", lambda i: with_metadata(i, segment_count=3)),
    ("edit_out_of_range", "number_swap", shifted_edit),
    (
        "edit_out_of_range",
        "number_swap",
        lambda i: with_metadata(i, edits=[{"donor": [0, 1], "recipient": [0, 10**9]}]),
    ),
    ("edit_out_of_range", "number_swap", lambda i: with_metadata(i, edits=[{"donor": [0, 1]}])),
    ("edit_out_of_range", "number_swap", lambda i: with_metadata(i, edits=3)),
    ("hard_negative_without_edit", "negation", lambda i: with_metadata(i, edits=[])),
]


@pytest.mark.parametrize(("rule", "transform", "mutate"), MUTATIONS)
def test_each_defect_is_found(
    fixture_items: tuple[WorkloadItem, ...],
    rule: str,
    transform: str,
    mutate: Callable[[WorkloadItem], WorkloadItem],
) -> None:
    item = next(item for item in fixture_items if item.transform == transform)
    assert rules_broken(item) == set()
    assert rule in rules_broken(mutate(item))


def test_every_rule_has_a_mutation() -> None:
    assert {rule.name for rule in RULES} == {rule for rule, _, _ in MUTATIONS}


def test_duplicate_items_are_found(fixture_items: tuple[WorkloadItem, ...]) -> None:
    assert rules_broken(fixture_items[0], fixture_items[0]) == {"duplicate_item_id"}


def test_prompts_too_short_to_be_planned_are_flagged(fixture_items: tuple[WorkloadItem, ...]) -> None:
    item = next(i for i in fixture_items if i.is_stream)
    short = replace(item, recipient_prompt="Who keeps the keys?")
    audit = audit_items([short], open_tokenizer(None))
    assert [(w.rule, w.item_id) for w in audit.warnings] == [("short_recipient", item.item_id)]
    assert "below 64" in audit.warnings[0].detail
    assert audit.violations == ()
    assert audit_items([item], open_tokenizer(None)).warnings == ()
