"""Answers compared word by word, with references or with the cold answer. The best value over all references counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rapidfuzz.distance import LCSseq

from sembench.scoring.base import Mark, Task

_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_ARTICLES: Final = frozenset({"a", "an", "the"})
_OPTION: Final = re.compile(r"\s*\(?([A-H])[.):]?\)?\s*")
# "(A)" and "the answer is A" name an option, "A ferry runs" does not.
_NAMED_OPTION: Final = (
    re.compile(r"^\W*([A-H])(?=\s*$|\s*[.):,]|\s*\n)"),
    re.compile(r"\b[Aa]nswer\s*(?:is|:)?\s*:?\s*\(?([A-H])\b(?!\s+[a-z])"),
    re.compile(r"\b[Oo]ption\s+\(?([A-H])\b"),
    re.compile(r"\(([A-H])\)"),
)


@dataclass(frozen=True, slots=True)
class Scores:
    token_recall: float
    f1: float
    rouge_l: float
    exact_match: bool


def words_of(text: str) -> tuple[str, ...]:
    """Words without case, punctuation and English articles; every ideograph is a word.

    A text of articles alone keeps them: the option "A" is an answer.
    """
    words = tuple(_WORD.findall(text.casefold()))
    return tuple(word for word in words if word not in _ARTICLES) or words


def usable(references: Sequence[str]) -> tuple[str, ...]:
    """References with at least one word; the others cannot be scored against."""
    return tuple(reference for reference in references if words_of(reference))


def score(answer: str, references: Sequence[str]) -> Scores | None:
    """The best scores over all references; None without a usable one, which differs from a score of 0."""
    against = usable(references)
    if not against:
        return None
    words = words_of(answer)
    known = [words_of(reference) for reference in against]
    return Scores(
        token_recall=max(token_recall(words, reference) for reference in known),
        f1=max(f1(words, reference) for reference in known),
        rouge_l=max(rouge_l(words, reference) for reference in known),
        exact_match=any(exact_match(answer, reference) for reference in against),
    )


def token_recall(answer: Sequence[str], reference: Sequence[str]) -> float:
    """The fraction of the reference's words that the answer contains, repeated words counted as often as they occur."""
    return _shared_words(answer, reference) / len(reference)


def f1(answer: Sequence[str], reference: Sequence[str]) -> float:
    """The harmonic mean of precision and recall over words; their order does not count."""
    return 2 * _shared_words(answer, reference) / (len(answer) + len(reference))


def rouge_l(answer: Sequence[str], reference: Sequence[str]) -> float:
    """F-measure of the longest common subsequence of words."""
    return 2 * LCSseq.similarity(answer, reference) / (len(answer) + len(reference))


def exact_match(answer: str, reference: str) -> bool:
    """The same words, or for multiple choice the same option."""
    option = option_of_reference(reference)
    if option is not None:
        return option_of_answer(answer) == option
    return words_of(answer) == words_of(reference)


def option_of_reference(reference: str) -> str | None:
    """The option letter if the reference is nothing but an option such as "(A)", else None."""
    found = _OPTION.fullmatch(reference)
    return found.group(1) if found else None


def option_of_answer(answer: str) -> str | None:
    for pattern in _NAMED_OPTION:
        if found := pattern.search(answer):
            return found.group(1)
    return None


def is_right(scores: Scores, references: Sequence[str], threshold: float) -> bool:
    """Compare with known answers: the option must match in multiple choice, otherwise enough of an answer's words."""
    if all(option_of_reference(reference) is not None for reference in usable(references)):
        return scores.exact_match
    return scores.token_recall >= threshold


def is_kept(scores: Scores, threshold: float) -> bool:
    """Compare with the cold answer when no answer is known: enough of its words must occur in the same order."""
    return scores.rouge_l >= threshold


def is_flipped(cold: str, warm: str, cold_right: bool | None, warm_right: bool | None, threshold: float) -> bool:
    """Whether the answer changed between the arms: right became wrong, or wrong became right.

    If neither is right, or correctness is unknown, the answer flipped when the warm one differs from the cold one. Two
    right answers may be worded differently without being a flip.
    """
    if cold_right is not None and warm_right is not None and (cold_right or warm_right):
        return cold_right != warm_right
    scores = score(warm, (cold,))
    return cold.strip() != warm.strip() if scores is None else not is_kept(scores, threshold)


def _shared_words(answer: Sequence[str], reference: Sequence[str]) -> int:
    return (Counter(answer) & Counter(reference)).total()


def mark_words(answer: str, task: Task) -> Mark:
    """Token F1 over the whole answer; right by recall, or by the option in multiple choice."""
    read = " ".join(words_of(answer)) or None
    scores = score(answer, task.answers)
    if scores is None:
        return Mark(read)
    return Mark(read, scores.f1, is_right(scores, task.answers, task.threshold))


def mark_first_line(answer: str, task: Task) -> Mark:
    """The same over the first line that has text: models that are not tuned for chat continue with other questions."""
    return mark_words(next((line for line in answer.splitlines() if line.strip()), ""), task)
