"""Texts in; out: donors and recipients of every class, with the content reframed, edited, reordered or composed.

A law predicts nothing beyond the largest context risk that was measured. Risk depends on how content is arranged and
hardly on its length: it grows with the number of passages and with the text before them that differs. So every class
has three arrangements, with less and more differing context, each in short, medium and long prompts. Half the prompts
are short, because a long one takes as much time as three of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sembase.errors import ConfigurationError
from semblend.contract import PlanShape

PASSAGE_WORDS: Final = 120
SHORT_TOKENS: Final = 1_536  # no arrangement is too short for the default gates, even with a sixth fewer tokens a word
LONGEST_TOKENS: Final = 4_096
PASSAGES: Final = 5
_PASSAGES_OF_SHORT: Final = 7  # where an arrangement has many: of about 220 tokens, so 18 in 4,096
_INSERTED: Final = {PlanShape.NEW_INSTRUCTION: (0, 1, 5), PlanShape.EDIT: (0, 1, 3)}  # passages, by arrangement
_OLD: Final = "You read documents and answer briefly."
_NEW: Final = (
    "Below is some material that a colleague has collected. Study it with care before you answer the question."
)
_QUESTION: Final = "\n\nWhat does the text say? Answer in one sentence:"
_FRAME_WORDS: Final = len((_NEW + _QUESTION).split())


@dataclass(frozen=True, slots=True)
class CalibrationItem:
    """``wanted`` is the class the recipient was built for; the planner decides which class it gets."""

    name: str
    wanted: PlanShape
    donors: tuple[str, ...]
    recipient: str


@dataclass(frozen=True, slots=True)
class PromptWords:
    """The lengths of prompts, in words."""

    short: int
    medium: int
    long: int

    def of(self, number: int) -> int:
        """The length of a class's item with this number: of four items two are short and one is long."""
        return (self.short, self.medium, self.short, self.long)[number % 4]


def prompt_words(longest_tokens: int, tokens_per_word: float) -> PromptWords:
    short = min(SHORT_TOKENS, longest_tokens)
    tokens = (short, math.sqrt(short * longest_tokens), longest_tokens)
    return PromptWords(*(max(PASSAGES, int(each / tokens_per_word) - _FRAME_WORDS) for each in tokens))


def passages_of(text: str) -> list[str]:
    words = text.split()
    starts = range(0, len(words) - PASSAGE_WORDS + 1, PASSAGE_WORDS)
    return [" ".join(words[start : start + PASSAGE_WORDS]) for start in starts]


def items_of(text: str, per_class: int, lengths: PromptWords) -> list[CalibrationItem]:
    """No text is used in two items, so every item has its own donors."""
    supply = _Supply(text.split())
    items = [_item(number, shape, lengths, supply) for number in range(per_class) for shape in PlanShape]
    if supply.used > supply.available:
        raise ConfigurationError(
            f"the texts have {supply.available} words, but {per_class} items per class need {supply.used}: add text, "
            "or reduce --items or --longest"
        )
    return items


class _Supply:
    """Words of the texts, each given out once. Beyond their end it gives out nothing and counts what is missing."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self.available, self.used = len(words), 0

    def passages(self, count: int, words: int) -> list[str]:
        return [self._passage(words) for _ in range(count)]

    def _passage(self, words: int) -> str:
        start, self.used = self.used, self.used + words
        return " ".join(self._words[start : self.used])


def _item(number: int, shape: PlanShape, lengths: PromptWords, supply: _Supply) -> CalibrationItem:
    words, arrangement = lengths.of(number), number % 3
    if shape in _INSERTED:
        inserted = _INSERTED[shape][arrangement]
        count = PASSAGES + inserted
        each = min(words // PASSAGES, lengths.long // count)
        new, own = supply.passages(inserted, each), supply.passages(PASSAGES, each)
        donors: tuple[str, ...] = (_prompt(_OLD, own),)
        now = [*new, *own] if shape is PlanShape.NEW_INSTRUCTION else _edited(own, new)
    else:
        count = max(PASSAGES, _PASSAGES_OF_SHORT * words // lengths.short) if arrangement == 0 else PASSAGES
        each = words // count
        own = supply.passages(count, each)
        if shape is PlanShape.REORDER:
            donors, now = (_prompt(_OLD, own),), _reordered(own, arrangement)
        else:
            others = supply.passages((2 * (count // 2), PASSAGES, 0)[arrangement], each)
            donors, now = _apart(own, others), own
    return CalibrationItem(f"{shape.value}/{number}", shape, donors, _prompt(_NEW, now))


def _edited(own: Sequence[str], new: Sequence[str]) -> list[str]:
    """Some words in the middle replaced, or passages inserted: before the first one that is kept, and after it."""
    if not new:
        return [*own[:2], _corrected(own[2]), *own[3:]]
    front = len(new) // 3
    return [*new[:front], own[0], *new[front:], *own[1:]]


def _reordered(own: Sequence[str], arrangement: int) -> list[str]:
    """In reverse; or so that no passage keeps its neighbour, but some keep their order; or the last one first."""
    if arrangement == 0:
        return list(reversed(own))
    if arrangement == 1:
        return [own[(2 * place + 2) % len(own)] for place in range(len(own))]
    return [own[-1], *own[:-1]]


def _apart(own: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Donors of the passages: two, deep in which they are in reverse; or one of each, after another passage or none."""
    if len(others) in (0, PASSAGES):
        return tuple(_prompt(_OLD, [*others[place : place + 1], passage]) for place, passage in enumerate(own))
    half = len(others) // 2
    return tuple(
        _prompt(_OLD, [*before, *reversed(own[first::2])])
        for first, before in enumerate((others[:half], others[half:]))
    )


def _prompt(head: str, passages: Sequence[str]) -> str:
    return head + "\n\n" + "\n\n".join(passages) + _QUESTION


def _corrected(passage: str) -> str:
    words = passage.split()
    middle = len(words) // 2
    return " ".join([*words[: middle - 2], "as", "was", "corrected", "later,", *words[middle + 2 :]])
