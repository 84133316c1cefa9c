"""Multiple choice: which option an answer names. "A ferry runs" names none, "(A)" and "the answer is A" do."""

from __future__ import annotations

import re
from typing import Final

_OPTION: Final = re.compile(r"\s*\(?([A-H])[.):]?\)?\s*")
_NAMED: Final = (
    re.compile(r"^\W*([A-H])(?=\s*$|\s*[.):,]|\s*\n)"),
    re.compile(r"\b[Aa]nswer\s*(?:is|:)?\s*:?\s*\(?([A-H])\b(?!\s+[a-z])"),
    re.compile(r"\b[Oo]ption\s+\(?([A-H])\b"),
    re.compile(r"\(([A-H])\)"),
)


def option_of_reference(reference: str) -> str | None:
    """The letter, if the reference is nothing but an option."""
    found = _OPTION.fullmatch(reference)
    return found.group(1) if found else None


def option_of_answer(answer: str) -> str | None:
    for pattern in _NAMED:
        if found := pattern.search(answer):
            return found.group(1)
    return None
