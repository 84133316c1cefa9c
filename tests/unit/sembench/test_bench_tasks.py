"""Generated answer tasks: the gold answer follows from the document, and from the earlier revision another one does.

A solver of its own per task reads the text, not the generator's records.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sembase.errors import ConfigurationError, ContractError
from sembase.tokenizer import open_tokenizer
from sembench.audit.manifest import audit_items
from sembench.manifest import WorkloadItem
from sembench.scoring import SCORES, mark
from sembench.scoring.base import task_of
from sembench.workload.build import BuildCounts, build_items, iterate_items
from sembench.workload.record import SourceRecord
from sembench.workload.seeded import Draws
from sembench.workload.sources import SOURCES, SourceRequest
from sembench.workload.tasks import BUILT_IN, DEFAULT, TASKS
from sembench.workload.tasks.base import Change, Draft, record_of
from sembench.workload.transforms import ANSWERED, TransformContext
from sembench.workload.transforms.edits import Edit, apply_edits

REUSES = ("instruction_variant", "rag_reorder", "multi_donor_composite", "field_edit")


def one(pattern: str, text: str) -> str:
    (found,) = re.findall(pattern, text)
    return str(found)


def solve_plain_fact(text: str, question: str) -> str:
    person = one(r"Where does (.+) live\?", question)
    city = one(rf"{person} lives in (\w+)\.", text)
    assert city == one(rf"{person} has lived in (\w+)\.", text)
    return city


def solve_key_value(text: str, question: str) -> str:
    key = one(r"code of the (.+)\?", question)
    return one(rf"The code of the {key} is (\d+)\.", text)


def solve_multi_value(text: str, question: str) -> str:
    key = one(r"^The (.+) has", question)
    return ", ".join(re.findall(rf"One code of the {key} is (\d+)\.", text))


def solve_quote(text: str, question: str) -> str:
    person = one("what (.+) wrote,", question)
    return one(rf'{person} wrote: "([^"]+)"', text)


def solve_count(text: str, question: str) -> str:
    key = one(r"was the (.+) seen", question)
    return str(len(set(re.findall(rf"The {key} was seen in (\w+)\.", text))))


def solve_derived(text: str, question: str) -> str:
    crate = one(r"the crate (\w+)", question)
    colour = one(rf"The seal of the crate {crate} is (\w+)\.", text)
    return one(rf"A crate with a {colour} seal belongs in hall (\w+)\.", text)


def solve_stated(text: str, question: str) -> str:
    crate = one(r"the crate (\w+)", question)
    stated = one(rf"So the crate {crate} is in hall (\w+)\.", text)
    assert stated == solve_derived(text, question)
    return stated


def definitions(text: str) -> dict[str, ast.FunctionDef]:
    found: dict[str, ast.FunctionDef] = {}
    for file in re.split(r"(?m)^# file: .*$", text)[1:]:
        code = re.split(r"(?m)^(?=\S)(?!def )", file.strip())[0]
        found |= {node.name: node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
    return found


def call_of(definition: ast.FunctionDef, name: str) -> str:
    return f"{name}({', '.join(argument.arg for argument in definition.args.args)})"


def solve_usage(text: str, question: str) -> str:
    name = one(r"the function (\w+) as", question)
    used = one(rf"(?m)^result = ({name}\(.*\))$", text)
    assert used == call_of(definitions(text)[name], name)
    return used


def solve_call(text: str, question: str) -> str:
    name = one(r"the function (\w+) of", question)
    return call_of(definitions(text)[name], name)


def solve_complete(text: str, question: str) -> str:
    purpose = one(r"the purpose to (.+?)\. Call", question)
    (name,) = [n for n, node in definitions(text).items() if (ast.get_docstring(node) or "").lower() == f"{purpose}."]
    return call_of(definitions(text)[name], name)


def solve_rename(text: str, question: str) -> str:
    old, new = re.findall(r"function (\w+) to (\w+)\.", question)[0]
    assert new not in definitions(text)
    return f"def {call_of(definitions(text)[old], new)}:"


WISHES = {"cancel": "cancel_plan", "invoice": "send_invoice", "pause": "pause_account", "technician": "book_visit"}


def solve_tool(text: str, question: str) -> str:
    person = one(r"^(.+?) wants", question)
    record = re.findall(rf"{person} lives in (\w+), has the account (\w+) and pays for plan (\w+)\.", text)
    ((city, account, plan),) = record
    name = next((tool for word, tool in WISHES.items() if word in question), "move_plan")
    keys = {
        "cancel_plan": ("account", "plan"),
        "send_invoice": ("account", "city"),
        "pause_account": ("account",),
        "book_visit": ("account", "city"),
        "move_plan": ("account", "city", "plan"),
    }[name]
    values = {"account": account, "city": city, "plan": plan}
    return json.dumps({"name": name, "arguments": {key: values[key] for key in keys}})


def solve_judge(text: str, question: str) -> str:
    story = r"built a (\w+) in (\w+) in the year (\d+)"
    record = re.findall(rf"According to the record, .*? {story}", text)
    reports = re.findall(rf"Report of candidate (\w+)\.\n[^\n]*?I found that .*? {story}", text)
    assert len(reports) == 4
    (right,) = [name for name, *points in reports if tuple(points) == record[0]]
    return str(right)


SOLVERS: dict[str, Callable[[str, str], str]] = {
    "plain_fact": solve_plain_fact,
    "key_value": solve_key_value,
    "multi_value": solve_multi_value,
    "quote": solve_quote,
    "count": solve_count,
    "derived_stated": solve_stated,
    "derived_rule": solve_derived,
    "code_usage": solve_usage,
    "code_call": solve_call,
    "code_complete": solve_complete,
    "code_rename": solve_rename,
    "tool_call": solve_tool,
    "tool_call_api": solve_tool,
    "judge": solve_judge,
}


def records(*tasks: str, count: int = 3, seed: int = 0, words: int = 300) -> list[SourceRecord]:
    return SOURCES.get("answers")(SourceRequest(tasks, None, count, seed=seed, context_words=words))


def built(found: list[SourceRecord], *transforms: str, seed: int = 0) -> tuple[WorkloadItem, ...]:
    return build_items(found, transforms or ANSWERED, TransformContext(found, seed=seed)).items


def says(text: str, answers: tuple[str, ...], metadata: dict[str, Any]) -> bool | None:
    """Whether the task's own score calls this complete answer right."""
    return mark(text, task_of(answers, {**metadata, "answer_before": ""}, 0.6)).right


@pytest.mark.parametrize("task", BUILT_IN)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), words=st.integers(0, 900))
def test_the_gold_answer_follows_from_the_document_and_the_control_from_its_revision(
    task: str, seed: int, words: int
) -> None:
    (record,) = records(task, count=1, seed=seed, words=words)
    metadata = dict(record.metadata)
    assert says(SOLVERS[task](record.context, record.question), record.answers, metadata) is True
    earlier, _ = apply_edits(record.context, [Edit(*edit) for edit in record.earlier_edits])
    assert record.earlier_answer is not None
    assert says(SOLVERS[task](earlier, record.question), (record.earlier_answer,), metadata) is True
    assert says(record.earlier_answer, record.answers, metadata) is False, "the control has another answer"
    assert len(record.context.split()) >= words


@pytest.mark.parametrize("task", ["code_usage", "code_call"])
@pytest.mark.parametrize("words", [0, 324, 600, 900])
def test_code_is_as_long_as_asked_for_whatever_its_functions_are(task: str, words: int) -> None:
    made = records(task, count=40, words=words)
    assert min(len(record.context.split()) for record in made) >= words


@pytest.mark.parametrize("task", DEFAULT)
def test_every_arrangement_keeps_the_answer_in_the_recipient(task: str) -> None:
    items = built(records(task, words=500))
    assert {item.transform for item in items} >= set(REUSES)
    for item in items:
        if item.transform in REUSES:
            solved = SOLVERS[task](item.recipient_prompt, item.input)
            assert says(solved, item.answers, dict(item.metadata)) is True, item.transform
            assert item.recipient_prompt != item.donor_prompts[0].text
    composed = [item for item in items if item.transform == "multi_donor_composite"]
    assert all(len(item.donor_prompts) >= 3 for item in composed)
    assert audit_items(items, open_tokenizer(None)).violations == ()


@pytest.mark.parametrize("task", ["code_usage", "code_call", "code_complete", "code_rename"])
def test_code_that_closes_the_fence_of_its_prompt_is_read(task: str) -> None:
    """The prompt opens a code block, so the model continues the code, closes the block and may explain."""
    for record in records(task):
        written = f"return {record.answers[0]}" if task == "code_complete" else record.answers[0]
        before = str(record.metadata["answer_before"])
        assert record.opening.endswith(before)
        assert written.startswith(before)
        for end in ("", "\n```\n", "\n```\nTo call the function shown(other, names):\n```python\nother(1)\n```"):
            marked = mark(written[len(before) :] + end, task_of(record.answers, record.metadata, 0.6))
            assert marked.right is True, (marked, end)


def test_a_used_function_has_its_parameters_twice_and_another_order_at_both_places_in_the_earlier_revision() -> None:
    for record in records("code_usage", count=10):
        right, stale = record.answers[0], record.earlier_answer
        earlier, _ = apply_edits(record.context, [Edit(*edit) for edit in record.earlier_edits])
        for text, call, other in ((record.context, right, stale), (earlier, stale, right)):
            assert text.count(f"def {call}:") == text.count(f"result = {call}") == 1
            assert str(other) not in text


def test_a_usage_is_right_or_that_of_the_earlier_revision() -> None:
    (item,) = built(records("code_usage", count=1), "field_edit")
    task = task_of(item.answers, item.metadata, 0.6)
    for call, expected in ((item.answers[0], (True, False)), (str(task.stale), (False, True))):
        for answer in (call.removeprefix(task.before), f"```python\nresult = {call}\n```"):
            found = mark(answer, task)
            assert (found.right, found.stale) == expected


def test_an_edited_donor_has_the_stale_answer_and_only_that_item_names_it() -> None:
    for item in built(records(*DEFAULT, count=1)):
        if item.transform != "field_edit":
            assert "stale_answer" not in item.metadata
            continue
        stale = item.metadata["stale_answer"]
        solved = SOLVERS[item.dataset](item.donor_prompts[0].text, item.input)
        assert says(solved, (stale,), dict(item.metadata)) is True
        assert item.metadata["hard_negative"] is True


def test_later_text_of_a_derived_fact_is_the_same_in_both_revisions() -> None:
    """Only the field changes, so KV after it can hold the old conclusion."""
    for record in records("derived_rule", count=10):
        ((start, end, before),) = record.earlier_edits
        assert record.context[start:end] != before
        assert end < len(record.passages[0]), "the field is in the first passage"
        crate = one(r"the crate (\w+)", record.question)
        later = record.passages[2:]
        assert all(f"crate {crate}" in passage for passage in later)
        assert not any(f"hall {hall}" in passage for passage in later for hall in record.metadata["choices"])


def test_an_unread_document_does_not_hold_the_answer() -> None:
    found = records("key_value", "quote", "derived_rule", count=6)
    unread = built(found, "unread_document")
    assert {item.dataset for item in unread} >= {"key_value", "quote"}
    for item in unread:
        body = item.recipient_prompt.rpartition("\n\nNote wanted:")[0]
        assert not any(answer in body for answer in item.answers)
        assert not item.negative_control, "its document may be reused; only its answer is a control"


def test_the_same_seed_gives_the_same_items_and_another_seed_others() -> None:
    assert built(records(*DEFAULT)) == built(records(*DEFAULT))
    first, second = records(*DEFAULT, count=1), records(*DEFAULT, count=1, seed=1)
    assert all(a.context != b.context and a.source_id != b.source_id for a, b in zip(first, second, strict=True))


def test_openings_are_in_every_prompt_of_the_question_and_in_no_other() -> None:
    (record,) = records("key_value", count=1)
    names = (
        "instruction_variant",
        "same_evidence_new_task",
        "leading_evidence_new_task",
        "rag_reorder",
        "exact_repeat",
    )
    items = built([record], *names)
    assert all(item.recipient_prompt.endswith(record.opening) for item in items)
    asked_something_else = next(item for item in items if item.transform == "same_evidence_new_task")
    assert not asked_something_else.donor_prompts[0].text.endswith(record.opening)


def test_every_task_names_a_score_that_exists_and_tools_only_where_the_api_has_them() -> None:
    found = {record.dataset: record.metadata for record in records(*BUILT_IN, count=1)}
    assert {str(metadata["score"]) for metadata in found.values()} <= set(SCORES.names())
    assert [task for task, metadata in found.items() if "tools" in metadata] == ["tool_call_api"]
    assert {record.dataset for record in records(count=1)} == set(DEFAULT)


def test_a_change_that_is_not_at_one_place_is_refused() -> None:
    draft = Draft(
        passages=["A pump.", "A pump."],
        question="?",
        other_question="?",
        answers=("pump",),
        score="words",
        changes=(Change("A pump.", "pump", "valve"),),
        earlier_answer="valve",
    )
    with pytest.raises(ContractError, match="not at one place"):
        record_of(draft, "d", "s")


def test_an_unknown_task_is_named() -> None:
    with pytest.raises(ConfigurationError, match="unknown task 'key_values'"):
        records("key_values")


@given(st.integers(0, 1000))
def test_numbers_and_names_are_different(seed: int) -> None:
    draft = TASKS.get("key_value")(Draws(seed), 100)
    facts = re.findall(r"The code of the (\w+ \w+) is (\d{6})\.", "\n".join(draft.passages))
    assert len(facts) == len({key for key, _ in facts}) == len({value for _, value in facts}) == 15


def test_records_that_are_too_long_are_left_out_and_counted() -> None:
    found = records("key_value", count=2, words=200) + records("quote", count=2, words=900)
    counts = BuildCounts(max_context_chars=4000)
    items = list(iterate_items(found, ("exact_repeat",), TransformContext(found), counts))
    assert [item.dataset for item in items] == ["key_value"] * 2
    assert counts.skipped["(record)"] == {"document of more than 4000 characters": 2}
