"""Scores of answers: what each reads from a text, and the laws that reading and marking keep."""

from __future__ import annotations

import json
import keyword
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from sembench.scoring import SCORES, Mark, Task, mark
from sembench.scoring.base import task_of

NAMES = st.from_regex(r"[a-z]{2,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
VALUES = st.one_of(st.integers(-999, 999), st.booleans(), st.none(), st.text(max_size=8))
ARGUMENTS = st.dictionaries(NAMES, st.one_of(VALUES, st.lists(VALUES, max_size=3)), max_size=4)


def marked(score: str, answer: str, *answers: str, **fields: Any) -> Mark:
    return mark(answer, Task(score=score, answers=answers, **fields))


@pytest.mark.parametrize(
    ("score", "answer", "read"),
    [
        ("number", " 3 cities.", "3"),
        ("number", "Three, as listed", "3"),
        ("number", "1,204", "1204"),
        ("number", "someone knows", None),
        ("digits", "One of them is 007", "7"),
        ("digits", "none", None),
        ("values", " 300, 21 and 300.\nThe next 5", "21 300"),
        ("values", "12; then 13", "12"),
        ("values", "none at all", None),
        ("choice", "It is in hall LIMA, not Oslo", "Lima"),
        ("choice", "Limason", None),
        ("choice", "New Oslo is here", "New Oslo"),
        ("quote", ' "The Lamp  was lit." And', "the lamp was lit"),
        ("quote", " the lamp was lit\nNext", "the lamp was lit"),
        ("quote", ' "', None),
        ("quote", 'The lamp was lit." Then Ann wrote: "It is out."', "the lamp was lit"),
        ("quote", 'The lamp was lit.\nAnn wrote: "It is out."', "the lamp was lit"),
        ("quote", 'The lamp was lit. "It is out."', "the lamp was lit"),
        ("quote", 'The lamp was lit "', "the lamp was lit"),
        ("quote", '"The lamp was lit," Ann wrote, and "It is out."', "the lamp was lit"),
        ("quote", 'Ann Lee wrote: "The lamp was lit." And "it is out"', "the lamp was lit"),
        ("quote", "Ann Lee wrote: \u201cThe lamp was lit.\u201d", "the lamp was lit"),
        ("quote", 'Ann Lee wrote "The lamp was lit', "the lamp was lit"),
        ("quote", '**Ann Lee** wrote:\n\n> **"The lamp was lit."**', "the lamp was lit"),
        ("quote", 'Here it is:\n\nAnn Lee wrote: "The lamp was lit."', "the lamp was lit"),
        ("quote", 'Ann Lee wrote: "', None),
        ("call", "```python\nresult = pay(a, y=2, x=1)\n```", "pay(a, x=1, y=2)"),
        ("call", "shop.pay(1, [2, (3)])\nother(4)", "shop.pay(1, [2, 3])"),
        ("call", "def pay(a):\n    return tax(a)", "tax(a)"),
        ("call", "pay(", None),
        ("call", "(no call)", None),
        ("definition", "def pay(a: int, *, b: dict = {}) -> int:\n    ...", "pay(a, *, b={})"),
        ("definition", "pay(a)", None),
        ("tool_call", 'Sure: {"name": "book", "arguments": "{\\"n\\": 2.0}"}', '{"arguments":{"n":2},"name":"book"}'),
        ("tool_call", '{"name": "book"}', None),
        ("tool_call", '{"name": "book", "arguments": {', None),
        ("command", "cat a.py  \n```\n\nand then", "cat a.py"),
        ("command", "ls -l<|im_end|>", "ls -l"),
        ("command", "\n```", None),
        ("short_answer", "\n Exeter College\nQuestion: who", "exeter college"),
        ("words", "The Exeter\nCollege", "exeter college"),
        ("", "The Exeter\nCollege", "exeter college"),
    ],
)
def test_what_a_score_reads(score: str, answer: str, read: str | None) -> None:
    assert marked(score, answer, choices=("Oslo", "Lima", "New Oslo")).read == read


def test_an_answer_continues_what_the_prompt_began_or_begins_again() -> None:
    for answer in (
        "ledger, rate)\nprint(1)",
        "pay(ledger, rate)",
        "```python\nx = pay(ledger, rate)\n```",
        "ledger, rate)\n```\nTo call the function pay(a, b)",  # closes the fence that the prompt opened
        "ledger, rate)\n```",
    ):
        assert marked("call", answer, "pay(ledger, rate)", before="pay(").right is True
    assert marked("call", "rate, ledger)", "pay(ledger, rate)", before="pay(").right is False


def test_a_quotation_is_right_with_and_without_an_introduction() -> None:
    quotation = "Costs for the hoist rose to 12 crowns."
    for answer in (f'{quotation}"\nAnn wrote: "No."', f'"{quotation}"', f'George Parker wrote: "{quotation}"'):
        found = marked("quote", answer, quotation, stale="No.")
        assert (found.right, found.stale) == (True, False)
    found = marked("quote", 'George Parker wrote: "No."', quotation, stale="No.")
    assert (found.right, found.stale) == (False, True)


def test_without_a_known_answer_there_is_a_reading_and_no_value() -> None:
    assert marked("number", "3") == Mark("3")
    assert marked("words", "a ferry") == Mark("ferry")
    assert marked("number", "3", "unknown") == Mark("3"), "an expectation that cannot be read is not known"


def test_an_unreadable_answer_is_wrong_and_not_stale() -> None:
    assert marked("number", "none", "3", stale="4") == Mark(None, 0.0, False, False)


def test_the_answer_of_an_earlier_revision_is_named() -> None:
    choices = ("Oslo", "Lima", "Rome")
    found = {answer: marked("choice", answer, "Oslo", stale="Lima", choices=choices) for answer in choices}
    assert [(mark.right, mark.stale) for mark in found.values()] == [(True, False), (False, True), (False, False)]
    assert marked("choice", "Oslo", "Oslo", choices=choices).stale is None


def test_partial_answers_have_a_value_between_and_are_not_right() -> None:
    values = marked("values", "1, 2, 9", "1, 2, 3")
    assert values.value == pytest.approx(2 / 3)
    assert values.right is False
    quote = marked("quote", "the lamp was out", "The lamp was lit.")
    assert (quote.value, quote.right) == (0.75, False)
    assert marked("quote", "the lamp was lit again", "The lamp was lit.").value == 0.8


def test_a_task_is_read_from_an_item() -> None:
    metadata = {"score": "call", "stale_answer": "f(1)", "answer_before": "f(", "choices": ["x", 2], "other": 1}
    task = task_of(["f(2)"], metadata, 0.5)
    assert task == Task(score="call", answers=("f(2)",), stale="f(1)", choices=("x", "2"), before="f(", threshold=0.5)
    assert task_of([], {}, 0.6) == Task()


def test_an_unknown_score_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown score 'numbr'.*Did you mean 'number'"):
        marked("numbr", "3", "3")


@given(st.sampled_from(SCORES.names()), st.text(max_size=300), st.text(max_size=60))
def test_no_text_breaks_a_score(score: str, answer: str, known: str) -> None:
    found = marked(score, answer, known, stale=known, choices=("Oslo",))
    assert found.value is None or 0.0 <= found.value <= 1.0
    assert (found.value is None) == (found.right is None)


@given(st.sampled_from(["number", "digits", "choice", "command", "tool_call", "call"]), st.text(max_size=80))
def test_what_was_read_is_read_again(score: str, answer: str) -> None:
    first = marked(score, answer, choices=("Oslo", "Lima")).read
    assert first is None or marked(score, first, choices=("Oslo", "Lima")).read == first


@given(st.lists(st.sampled_from(["Oslo", "Lima", "Rome", "New", "pays", "Romeo", "Osloer"]), max_size=8))
def test_the_first_choice_by_words(words: list[str]) -> None:
    choices = ("Oslo", "Lima", "Rome")
    assert marked("choice", " ".join(words), choices=choices).read == next((w for w in words if w in choices), None)


@given(st.lists(st.integers(0, 50)), st.lists(st.integers(0, 50), min_size=1))
def test_value_sets_against_a_count_by_hand(answer: list[int], known: list[int]) -> None:
    found = marked("values", ", ".join(map(str, answer)), " and ".join(map(str, known)))
    hits = sum(value in known for value in set(answer))
    precision, recall = (hits / len(set(answer)) if answer else 0.0), hits / len(set(known))
    expected = 2 * precision * recall / (precision + recall) if hits else 0.0
    assert found.value == pytest.approx(expected)
    assert found.right == (set(answer) == set(known))


def wrapped(name: str, arguments: dict[str, Any], form: int) -> str:
    plain = {"name": name, "arguments": arguments}
    forms = (
        json.dumps(plain),
        json.dumps(plain, indent=3),
        f"I call it now.\n<tool_call>\n{json.dumps(dict(reversed(plain.items())))}\n</tool_call>",
        json.dumps({"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}),
        json.dumps({"tool_calls": [{"id": "c1", "function": {"name": name, "arguments": arguments}}]}),
        f"```json\n[{json.dumps({'name': name, 'parameters': dict(reversed(arguments.items()))})}]\n```",
    )
    return forms[form]


@given(NAMES, ARGUMENTS, st.integers(0, 5), st.integers(0, 5))
def test_a_tool_call_is_its_name_and_arguments_in_any_form(
    name: str, arguments: dict[str, Any], one: int, other: int
) -> None:
    gold = wrapped(name, arguments, one)
    assert marked("tool_call", wrapped(name, arguments, other), gold).right is True
    assert marked("tool_call", wrapped(f"{name}_x", arguments, other), gold).right is False
    assert marked("tool_call", wrapped(name, {**arguments, "extra_one": 1}, other), gold).right is False


@given(NAMES, st.dictionaries(NAMES, st.integers(-9, 9), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_keyword_arguments_have_no_order(name: str, arguments: dict[str, int], random: Any) -> None:
    def text(pairs: dict[str, int], order: list[str]) -> str:
        return f"{name}({', '.join(f'{key}={pairs[key]}' for key in order)})"

    order = list(arguments)
    random.shuffle(order)
    gold = text(arguments, list(arguments))
    assert marked("call", f"x = {text(arguments, order)}  # done", gold).right is True
    changed = {**arguments, order[0]: arguments[order[0]] + 1}
    assert marked("call", text(changed, order), gold).right is False
    assert re.match(r"\w+\(", marked("call", gold).read or "")
