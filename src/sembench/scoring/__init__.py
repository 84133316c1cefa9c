"""Scores of answers by name. An item names its score in ``metadata["score"]``; without one, words are compared.

A score reads the answer (a number, a call, a choice) and compares what it read with the expected answers. Two arms
gave the same answer if the same was read from both. Third parties add scores by entry point.
"""

from __future__ import annotations

from typing import Final

from sembase.registry import Registry
from sembench.scoring.base import Mark, Score, Task

SCORES: Final[Registry[Score]] = Registry("score", group="sembench.scores")
DEFAULT: Final = "words"

_HOMES: Final = {
    DEFAULT: "words:mark_words",
    "short_answer": "words:mark_first_line",
    "number": "values:NUMBER",
    "digits": "values:DIGITS",
    "values": "values:VALUES",
    "choice": "values:CHOICE",
    "quote": "values:QUOTE",
    "call": "code:CALL",
    "definition": "code:DEFINITION",
    "tool_call": "tool_calls:TOOL_CALL",
    "command": "tool_calls:COMMAND",
}

for _name, _home in _HOMES.items():
    SCORES.register(_name, f"sembench.scoring.{_home}")


def mark(answer: str, task: Task) -> Mark:
    return SCORES.get(task.score or DEFAULT)(answer, task)


__all__ = ["DEFAULT", "SCORES", "Mark", "Score", "Task", "mark"]
