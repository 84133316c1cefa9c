"""A source record: one document with one question, before any transform. Sources and readers produce it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Question:
    """``opening`` is what the prompt already writes of the answer."""

    text: str
    opening: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """``passages`` are the record's own sections, if it has any; joined they equal the context, up to white space.

    ``verbatim`` means that ``context`` is a complete prompt as it was sent (an agent's call) and must not be wrapped.
    ``other_questions`` are real questions about the same document, used as new tasks; ``more_questions`` could be asked
    in place of the record's own. ``opening`` is what the prompt already writes of the answer. ``earlier_edits`` (start
    and end in ``context``, and the text there before) lead to an earlier revision of the document, whose answer is
    ``earlier_answer``.
    """

    dataset: str
    source_id: str
    context: str
    question: str = ""
    answers: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()
    other_questions: tuple[str, ...] = ()
    more_questions: tuple[Question, ...] = ()
    verbatim: bool = False
    opening: str = ""
    earlier_edits: tuple[tuple[int, int, str], ...] = ()
    earlier_answer: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def asking(self, question: Question) -> SourceRecord:
        """The same document with another question. A transform makes donors of the same text for it."""
        return replace(self, question=question.text, opening=question.opening, answers=question.answers)
