"""Texts in; out: donors and recipients of every class, with the content reframed, edited, reordered or composed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sembase.errors import ConfigurationError
from semblend.contract import PlanShape

PASSAGES: Final = 5
PASSAGE_WORDS: Final = 120
_ORDER: Final = (2, 4, 1, 3, 0)  # no passage keeps its neighbour
_OLD: Final = "You read documents and answer briefly."
_NEW: Final = (
    "Below is some material that a colleague has collected. Study it with care before you answer the question."
)
_QUESTION: Final = "\n\nWhat does the text say? Answer in one sentence:"


@dataclass(frozen=True, slots=True)
class CalibrationItem:
    """``wanted`` is the class the recipient was built for; the planner decides which class it gets."""

    name: str
    wanted: PlanShape
    donors: tuple[str, ...]
    recipient: str


def passages_of(text: str) -> list[str]:
    words = text.split()
    starts = range(0, len(words) - PASSAGE_WORDS + 1, PASSAGE_WORDS)
    return [" ".join(words[start : start + PASSAGE_WORDS]) for start in starts]


def items_of(passages: Sequence[str], per_class: int) -> Iterator[CalibrationItem]:
    """No passage is used in two items, so every item has its own donors."""
    need = dict.fromkeys(PlanShape, PASSAGES) | {PlanShape.COMPOSITION: 2 * PASSAGES}
    wanted = per_class * sum(need.values())
    if len(passages) < wanted:
        raise ConfigurationError(
            f"the texts have {len(passages)} passages of {PASSAGE_WORDS} words, but {per_class} items per class need "
            f"{wanted}: add text or reduce --items"
        )
    place = 0
    for number in range(per_class):
        for shape in PlanShape:
            yield _item(f"{shape.value}/{number}", shape, passages[place : place + need[shape]])
            place += need[shape]


def _item(name: str, shape: PlanShape, passages: Sequence[str]) -> CalibrationItem:
    own = list(passages[:PASSAGES])
    donors: tuple[str, ...] = (_prompt(_OLD, own),)
    if shape is PlanShape.EDIT:
        own[2] = _edited(own[2])
    elif shape is PlanShape.REORDER:
        own = [own[place] for place in _ORDER]
    elif shape is PlanShape.COMPOSITION:
        donors = tuple(_prompt(_OLD, pair) for pair in zip(passages[PASSAGES:], own, strict=True))
    return CalibrationItem(name, shape, donors, _prompt(_NEW, own))


def _prompt(head: str, passages: Sequence[str]) -> str:
    return head + "\n\n" + "\n\n".join(passages) + _QUESTION


def _edited(passage: str) -> str:
    words = passage.split()
    middle = len(words) // 2
    return " ".join([*words[: middle - 2], "as", "was", "corrected", "later,", *words[middle + 2 :]])
