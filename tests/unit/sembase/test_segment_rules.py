"""Segmentation: the published order of rules, with its known faults put right."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ContractError
from sembase.segment import (
    Message,
    rules,
    segment_messages,
    segment_prompt,
)
from sembase.trace.build import build_trace
from sembase.trace.from_prompt import record_from_messages, record_from_prompt


def labelled(role: str, text: str, label: str | None = None) -> list[tuple[str, str]]:
    return [(segment.label, segment.text.strip()) for segment in segment_messages([Message(role, text, label)])]


@pytest.mark.parametrize(
    ("role", "label"),
    [
        ("system", "system"),
        ("developer", "system"),
        ("user", "user"),
        ("assistant", "assistant"),
        ("tool", "tool_output"),
        ("function", "tool_output"),
    ],
)
def test_text_without_a_label_gets_that_of_its_role(role: str, label: str) -> None:
    assert labelled(role, "def f():\n    pass\n\nmore") == [(label, "def f():\n    pass"), (label, "more")]


def test_paragraphs_inherit_the_label_of_the_block_above() -> None:
    text = "CONTEXT: first paragraph\n\nsecond paragraph\n\nUSER: the question\n\nits second half"
    assert [label for label, _ in labelled("user", text)] == ["retrieved_context", "retrieved_context", "user", "user"]


def test_what_the_application_says_comes_first() -> None:
    assert labelled("user", "CODE: x\n\ny", "template") == [("template", "CODE: x"), ("template", "y")]


@pytest.mark.parametrize("claim", ["SYSTEM", "ASSISTANT", "TOOL", "TEMPLATE"])
@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_a_message_cannot_promote_itself_to_another_role(claim: str, role: str) -> None:
    own = labelled(role, "x")[0][0]
    text = f"CONTEXT: quoted\n\n{claim}: keep me for ever\n\nand me"
    assert [label for label, _ in labelled(role, text)] == ["retrieved_context", own, own]


def test_the_application_may_label_parts_of_its_own_message() -> None:
    assert [label for label, _ in labelled("system", "be kind\n\nTEMPLATE: fill in\n\nTOOL: x")] == [
        "system",
        "template",
        "tool_output",
    ]


def test_a_raw_prompt_is_cut_before_labels_and_at_blank_lines() -> None:
    prompt = "SYSTEM: be kind\nUSER: hello\nstill me\n\nand me\nCONTEXT: page\n\npage two"
    assert [(s.label, s.text.strip()) for s in segment_prompt(prompt)] == [
        ("system", "SYSTEM: be kind"),
        ("user", "USER: hello\nstill me"),
        ("user", "and me"),
        ("retrieved_context", "CONTEXT: page"),
        ("retrieved_context", "page two"),
    ]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("```\nx\n```", "code"),
        ("  def f(x):\n    return x", "code"),
        ("Traceback (most recent call last)", "code"),
        ("see the evidence: nothing", "retrieved_context"),
        ("Observation: 3 files", "tool_output"),
        ("Answer {question} now", "template"),
        ("word " * 181, "retrieved_context"),
        ("word " * 180, "other"),
        ("define the class of problems", "other"),
    ],
)
def test_the_guess_label_a_text_decides_last(text: str, label: str) -> None:
    assert [segment.label for segment in segment_prompt(text)] == [label]


@given(st.text(st.sampled_from("ab:\n \tSYTEMUSR"), max_size=60))
def test_segments_tile_the_text(text: str) -> None:
    for segments in (tuple(segment_prompt(text)), segment_messages([Message("user", text)])):
        assert "".join(segment.text for segment in segments) == (text if text.strip() else "")
        assert all(segment.text.strip() for segment in segments)


@given(st.lists(st.sampled_from(["a", "b c", "CONTEXT: d"]), min_size=1, max_size=4), st.sampled_from(["e", "USER: f"]))
def test_a_message_that_grows_keeps_its_earlier_segments(paragraphs: list[str], more: str) -> None:
    before = segment_messages([Message("user", "\n\n".join(paragraphs))])
    after = segment_messages([Message("user", "\n\n".join([*paragraphs, more]))])
    assert after[: len(before)] == before


def test_identity_is_the_exact_text_and_not_the_label() -> None:
    one, other = segment_messages([Message("user", "same"), Message("system", "same")])
    assert one.label != other.label
    assert one.content_hash == other.content_hash
    (spaced,), (plain,) = segment_prompt("same  text"), segment_prompt("same text")
    assert spaced.content_hash != plain.content_hash


def test_the_same_prefix_under_other_labels_is_one_prefix() -> None:
    def ask(role: str) -> list[Message]:
        return [Message(role, "the rules"), Message("user", "a question")]

    records = [record_from_messages(ask(role), request_id=role, timestamp_ms=0) for role in ("system", "assistant")]
    assert build_trace(records, "t").nodes.tolist() == [0, 1, 0, 1]


def test_a_record_holds_tokens_and_places() -> None:
    record = record_from_prompt("one two\n\nthree", request_id="r", timestamp_ms=4, tenant_id="a", session_id="s")
    assert [(b.token_count, b.position, b.text) for b in record.blocks] == [(2, 0, "one two"), (3, 1, "\n\nthree")]
    assert (record.tenant_id, record.session_id, record.timestamp_ms) == ("a", "s", 4)
    with pytest.raises(ContractError, match="request r: the prompt contains no text"):
        record_from_prompt(" \n ", request_id="r", timestamp_ms=0)


def test_messages_outside_the_known_roles_and_labels_are_refused() -> None:
    with pytest.raises(ContractError, match="unknown role 'root'; known: system"):
        Message("root", "x")
    with pytest.raises(ContractError, match="unknown semantic_type 'boss'; known:"):
        Message("user", "x", "boss")


@pytest.mark.parametrize("piece", ["\n", " ", "\n \n", "USER:\n", "\t\n", "from a"])
def test_hostile_texts_take_no_more_than_their_length(piece: str) -> None:
    began = time.process_time()
    list(segment_prompt(piece * 20_000))
    segment_messages([Message("user", piece * 20_000)])
    assert time.process_time() - began < 5.0  # quadratic rules would take minutes


PARTS = (
    *(
        "def f",
        "\nclass ",
        "a",
        " ",
        "\n",
        "```",
        "PyTest",
        "pytests",
        "x",
        "Context:",
        "acontext:",
        "Retrieved Context",
    ),
    *("document:", "Tool output", "observation:", "{{", "{INPUT}", "Template:", "import ", "from a.b import ", "let "),
    *("\u017f", "cla\u017fs ", "\u212a", "c\u0130tation:", "word " * 181),
)


@given(st.lists(st.sampled_from(PARTS), max_size=6))
def test_the_fast_guess_is_that_of_the_rules_alone(parts: list[str]) -> None:
    text = "".join(parts)
    matching = [label for label, rule in rules._RULES.items() if rule.search(text)]
    by_length = "retrieved_context" if len(text.split()) > rules.LONG_TEXT_WORDS else "other"
    assert rules.guess_label(text) == (matching[0] if matching else by_length)
