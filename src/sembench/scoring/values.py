"""Short answers: a number, a set of numbers, one of several choices, a quotation."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Final

from sembench.scoring.base import Score, Task, by_reading

_NAMES: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_WORDS: Final = tuple(_NAMES.split())
_DIGITS: Final = re.compile(r"\d+(?:,\d{3})*")
_NUMBER: Final = re.compile(rf"{_DIGITS.pattern}|\b(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)
_SENTENCE_END: Final = re.compile(r"[.;](?=\s|$)|\n")
_QUOTATION_MARKS: Final = '"\u201c\u201d\u00ab\u00bb'
_QUOTATION_START: Final = '["\u201c\u00ab]'
_QUOTATION_END: Final = re.compile(rf"[{_QUOTATION_MARKS}\n]")
_LINES_ENDING_IN_A_COLON: Final = rf"(?:[^{_QUOTATION_MARKS}\n]|(?<=[:\n])\n)*"
_INTRODUCTION: Final = re.compile(
    rf"\A{_LINES_ENDING_IN_A_COLON}(?::[\s*_>]*{_QUOTATION_START}|[\w,)*] {_QUOTATION_START}(?=\w))"
)


def read_number(text: str, task: Task) -> str | None:
    """The first whole number, in digits or as a word up to twenty."""
    found = _NUMBER.search(text)
    if found is None:
        return None
    word = found.group().lower()
    return str(_WORDS.index(word)) if word in _WORDS else _canonical(word)


def read_digits(text: str, task: Task) -> str | None:
    """The first whole number in digits: "one of them is 4711" is 4711."""
    found = _DIGITS.search(text)
    return None if found is None else _canonical(found.group())


def _canonical(digits: str) -> str:
    return digits.replace(",", "").lstrip("0") or "0"


def read_values(text: str, task: Task) -> str | None:
    """The different numbers of the first sentence, in ascending order: the order of a list does not count."""
    found = set(map(_canonical, _DIGITS.findall(_SENTENCE_END.split(text.strip(), maxsplit=1)[0])))
    return " ".join(sorted(found, key=lambda number: (len(number), number))) or None


def grade_values(read: str, expected: str) -> float:
    """F1 of the two sets."""
    ours, known = set(read.split()), set(expected.split())
    return 2 * len(ours & known) / (len(ours) + len(known))


def read_choice(text: str, task: Task) -> str | None:
    """The choice that is named first, as whole words; of two at the same place the longer one."""
    places = [
        (found.start(), -len(choice), choice)
        for choice in task.choices
        if (found := re.search(rf"(?<!\w){re.escape(choice)}(?!\w)", text, re.IGNORECASE))
    ]
    return min(places)[2] if places else None


def read_quote(text: str, task: Task) -> str | None:
    """The words up to the closing quotation mark or the line's end; case, spaces and the last stop do not count.

    The answer is inside the quotation from its start, unless a phrase such as "Ann wrote:" introduces the quotation.
    """
    begun = _INTRODUCTION.sub("", text.strip(), count=1).lstrip(_QUOTATION_MARKS)
    return " ".join(_QUOTATION_END.split(begun, maxsplit=1)[0].casefold().split()).rstrip(".,;!? ") or None


def grade_quote(read: str, expected: str) -> float:
    """The fraction of the quotation, in words, until the first difference; words after it lower the grade as well."""
    ours, known = read.split(), expected.split()
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, known, strict=False)))
    return same / max(len(ours), len(known))


NUMBER: Final[Score] = by_reading(read_number)
DIGITS: Final[Score] = by_reading(read_digits)
VALUES: Final[Score] = by_reading(read_values, grade_values)
CHOICE: Final[Score] = by_reading(read_choice)
QUOTE: Final[Score] = by_reading(read_quote, grade_quote)
