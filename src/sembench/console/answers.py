"""The table of answers per class: scores of both arms, their difference, flips, and the floor of two cold runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sembench.console.table import NOT_MEASURED, Table, number
from sembench.flips import AnswerClass
from sembench.report.estimates import Estimate

CLASS: Final = ("task", "reuse")
SCORES: Final = (
    *("pairs", "served", "cold", "ours", "change [95 %]"),
    *("exact cold", "exact ours", "same as cold", "F1 to cold"),
)
FLIPS: Final = ("answerable", "flips", "beyond floor", "stale", "floor n", "floor same", "floor flips")
COLUMNS: Final = (*CLASS, *SCORES, *FLIPS)
_SHORT: Final = ("task", "reuse", "served", "cold", "ours", "answerable", "flips", "beyond floor")


def answers_table(classes: Sequence[AnswerClass]) -> Table:
    """Empty if no pair has marked answers."""
    notes = [
        "Served: clean pairs with confirmed reuse, or all clean pairs where the backend did not report. Scores and "
        "their change are over all of them.",
        "Answerable: served pairs whose cold answer is right; only these are counted for flips (ours is wrong). "
        "Stale: of all served pairs, ours is the answer of an earlier revision and cold's is not.",
    ]
    if any(each.floor_n is None for each in classes):
        notes.append("No floor: every flip counts. Pass a second cold run of the same manifest as --floor-result.")
    else:
        notes.append("Floor: a second cold run. A flip is beyond the floor if the second cold answer is right.")
    if any(each.is_control for each in classes):
        notes.append("unread_document: the document does not hold the answer, so what is right there was guessed.")
    return Table("Answers, cold and with reuse", COLUMNS, tuple(map(_line, classes)), tuple(notes), _SHORT)


def _line(each: AnswerClass) -> tuple[str, ...]:
    return (
        each.task,
        each.transform,
        number(each.pairs),
        number(each.served),
        number(each.cold, 3),
        number(each.ours, 3),
        _change(each.change),
        number(each.exact_cold),
        number(each.exact_ours),
        _of(each.same, each.served),
        number(each.f1_to_cold, 3),
        number(each.answerable),
        number(each.flips),
        number(each.flips_beyond_floor),
        number(each.stale),
        number(each.floor_n),
        _of(each.floor_same, each.floor_n),
        _of(each.floor_flips, each.floor_answerable),
    )


def _change(change: Estimate | None) -> str:
    return NOT_MEASURED if change is None else change.shown(lambda value: f"{value + 0.0:+.3f}")


def _of(part: int | None, whole: int | None) -> str:
    return NOT_MEASURED if part is None else f"{part:,} of {whole or 0:,}"
