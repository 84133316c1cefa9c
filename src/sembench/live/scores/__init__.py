"""Scores of an answer against references: one file each, the best over all references counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sembench.live.scores.exact_match import exact_match
from sembench.live.scores.f1 import f1
from sembench.live.scores.option_letter import option_of_reference
from sembench.live.scores.rouge_l import rouge_l
from sembench.live.scores.token_recall import token_recall
from sembench.live.scores.words import words_of


@dataclass(frozen=True, slots=True)
class Scores:
    token_recall: float
    f1: float
    rouge_l: float
    exact_match: bool


def usable(references: Sequence[str]) -> tuple[str, ...]:
    """References that hold at least one word: nothing can be scored against the others."""
    return tuple(reference for reference in references if words_of(reference))


def score(answer: str, references: Sequence[str]) -> Scores | None:
    """None without a usable reference: not scored is not a score of 0."""
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


def is_right(scores: Scores, references: Sequence[str], threshold: float) -> bool:
    """Against known answers: the option itself for multiple choice, else enough of an answer's words."""
    if all(option_of_reference(reference) is not None for reference in usable(references)):
        return scores.exact_match
    return scores.token_recall >= threshold


def is_kept(scores: Scores, threshold: float) -> bool:
    """Against the cold answer, where no answer is known: enough of it, in its order."""
    return scores.rouge_l >= threshold


__all__ = ["Scores", "is_kept", "is_right", "score", "usable"]
