"""Builds prompts from documents and questions. The framing is short, so that it does not count as shared content."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.workload.record import SourceRecord

GENERIC_TASK = "Summarise the main points of the source."
FOLLOW_UP_TASK = "List the facts in the source that a careful reader should check."


def question_of(record: SourceRecord) -> str:
    return record.question.strip() or GENERIC_TASK


def new_question_of(record: SourceRecord) -> str:
    """A question about the same document that differs from the recipient's."""
    current = question_of(record)
    for question in record.other_questions:
        if question.strip() and question.strip() != current:
            return question.strip()
    return FOLLOW_UP_TASK if current != FOLLOW_UP_TASK else GENERIC_TASK


def base_prompt(record: SourceRecord, context: str | None = None, question: str | None = None) -> str:
    """Header, source, request: the usual form of a donor."""
    body = record.context if context is None else context
    if record.verbatim:
        return body
    asked, opening = (question_of(record), record.opening) if question is None else (question, "")
    return f"Answer the request from the source.\n\nSource:\n{body}\n\nRequest: {asked}\nAnswer:{opening}"


def analyst_prompt(record: SourceRecord) -> str:
    """The same source after a different instruction."""
    return (
        "You are an analyst preparing a short internal note. Work only from the material that follows and keep to what "
        f"it says.\n\nMaterial:\n{record.context}\n\nNote wanted: {question_of(record)}\nNote:{record.opening}"
    )


def request_first_prompt(record: SourceRecord) -> str:
    """The request before the evidence: every token of the evidence moves."""
    return (
        f"Task: {question_of(record)}\n\nRead this evidence and answer the task.\n\n{record.context}\n\n"
        f"Answer:{record.opening}"
    )


def evidence_first_prompt(record: SourceRecord) -> str:
    """The evidence at position 0."""
    return f"{record.context}\n\nTask about the text above: {question_of(record)}\nAnswer:{record.opening}"


def cache_entry_prompt(record: SourceRecord) -> str:
    return f"Document for later questions:\n\n{record.context}\n\nAcknowledge the document."


def numbered_prompt(record: SourceRecord, segments: Sequence[str], heading: str) -> str:
    body = "\n\n".join(f"{heading} {number}:\n{segment}" for number, segment in enumerate(segments, start=1))
    return f"{body}\n\nRequest: {question_of(record)}\nAnswer:{record.opening}"


def segment_prompt(segment: str, number: int) -> str:
    return f"Read and remember passage {number}.\n\n{segment}\n\nSay when you are done."
