"""Whether the answer is the reference: the same words, or for multiple choice the same option."""

from __future__ import annotations

from sembench.live.scores.option_letter import option_of_answer, option_of_reference
from sembench.live.scores.words import words_of


def exact_match(answer: str, reference: str) -> bool:
    option = option_of_reference(reference)
    if option is not None:
        return option_of_answer(answer) == option
    return words_of(answer) == words_of(reference)
