"""What a score gets and gives: the task of an item in, a mark of one answer out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """``answers`` are all right; ``stale`` is what an earlier revision of the document would answer.

    ``choices`` are the options of the task. ``before`` is what the prompt already wrote of the answer, such as the
    beginning of a call. ``threshold`` is the minimum score of a right answer where a score is not just 0 or 1.
    """

    score: str = ""
    answers: tuple[str, ...] = ()
    stale: str | None = None
    choices: tuple[str, ...] = ()
    before: str = ""
    threshold: float = 0.60


def task_of(answers: Sequence[str], metadata: Mapping[str, Any], threshold: float) -> Task:
    """The task of a workload item: its answers, and the keys of its metadata that scores use."""
    stale = metadata.get("stale_answer")
    return Task(
        score=str(metadata.get("score") or ""),
        answers=tuple(answers),
        stale=None if stale is None else str(stale),
        choices=tuple(map(str, metadata.get("choices") or ())),
        before=str(metadata.get("answer_before") or ""),
        threshold=threshold,
    )


@dataclass(frozen=True, slots=True)
class Mark:
    """``read`` is the answer in a canonical form, None if none could be read. Without known answers there is no value.

    ``stale`` says whether the answer is that of the earlier revision; None if the task has none.
    """

    read: str | None
    value: float | None = None
    right: bool | None = None
    stale: bool | None = None


Score = Callable[[str, Task], Mark]
Reader = Callable[[str, Task], str | None]
Grade = Callable[[str, str], float]


def equality(read: str, expected: str) -> float:
    return float(read == expected)


def by_reading(reader: Reader, grade: Grade = equality) -> Score:
    """A score that reads answer and expectation alike. The answer is right only if a grade is 1.

    A model may continue what the prompt began, or begin again: the first form that can be read counts.
    """

    def mark_read(answer: str, task: Task) -> Mark:
        read = reader(task.before + answer, task)
        if read is None and task.before:
            read = reader(answer, task)
        expected = [found for known in task.answers if (found := reader(known, task)) is not None]
        stale = None if task.stale is None else read is not None and read == reader(task.stale, task)
        if not expected:
            return Mark(read, stale=stale)
        value = 0.0 if read is None else max(grade(read, known) for known in expected)
        return Mark(read, value, value == 1.0, stale)

    return mark_read
