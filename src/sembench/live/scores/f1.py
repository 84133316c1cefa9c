"""The harmonic mean of precision and recall over words, order not counted."""

from __future__ import annotations

from collections.abc import Sequence

from sembench.live.scores.token_recall import shared_words


def f1(answer: Sequence[str], reference: Sequence[str]) -> float:
    return 2 * shared_words(answer, reference) / (len(answer) + len(reference))
