"""The model's own dependence on the order of passages: what is asked, and how it is held against reuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from benchmarks.answers.orders import in_donor_order, read_rows, report

from sembench.live.answer_budgets import BudgetRun, texts_of
from sembench.live.item_trials import ItemTrial, ItemTrials
from semblend.contract import PlanShape

RUN = BudgetRun(base_url="http://127.0.0.1:1", output=Path("b"), classes=(PlanShape.REORDER,), items=50)


def row(name: str, *right: bool, cold: bool) -> ItemTrials:
    return ItemTrials(
        item_id=name,
        dataset="plain_fact",
        transform="rag_reorder",
        up_to_tokens=4096,
        prompt_tokens=3800,
        shape=PlanShape.REORDER.value,
        moved_runs=2,
        shortest_run=700,
        policy="question",
        cold_right=cold,
        cold_read=None,
        cold_ms=None,
        floor_right=None,
        trials=tuple(
            ItemTrial(fraction=0.1 * (n + 1), right=each, read=None, stale=None, ms=None)
            for n, each in enumerate(right)
        ),
        why=None,
    )


def test_each_question_is_asked_about_the_document_as_its_donor_had_it() -> None:
    (text, *_) = texts_of(RUN, 1.5)
    (donor,) = text.items[0].donor_prompts
    asked = in_donor_order(text)
    assert [item.item_id for item in asked] == [item.item_id for item in text.items]
    for item, moved in zip(asked, text.items, strict=True):
        document, _, question = item.recipient_prompt.rpartition("\n\nRequest: ")
        assert donor.text.startswith(document)
        assert moved.recipient_prompt.endswith(question)
        assert not moved.recipient_prompt.startswith(document)
        assert item.answers == moved.answers


def test_what_reuse_changed_is_held_against_the_other_order() -> None:
    rows = {
        each.item_id: each
        for each in (
            row("kept", True, True, cold=True),
            row("lost in both ways", False, True, cold=True),
            row("lost by reuse alone", False, False, cold=True),
            row("gained in both ways", True, False, cold=False),
            row("not asked again", False, False, cold=True),
        )
    }
    other = {"kept": True, "lost in both ways": False, "lost by reuse alone": True, "gained in both ways": True}
    first, *by_fraction = report(rows, other).splitlines()
    assert first == ("without reuse: of 4 questions 3 right, in the donor's order 3: that order loses 1 and gains 1")
    assert by_fraction == [
        "0.1 recomputed: 2 lost, 1 of them in that order too; 1 gained, 1 of them in that order too",
        "0.2 recomputed: 1 lost, 0 of them in that order too; 0 gained, 0 of them in that order too",
    ]
    assert report({}, {}).startswith("without reuse: of 0 questions")


def test_rows_that_tell_nothing_are_left_out(tmp_path: Path) -> None:
    whole = row("a", True, cold=True)
    rows = (whole, replace(whole, item_id="b", shape=None), replace(whole, item_id="c", shape="composition"))
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(each.to_json()) for each in rows), encoding="utf-8")
    assert read_rows(tmp_path / "rows.jsonl") == {"a": whole}
