"""The share of the reference's words that the answer holds, each as often as it occurs there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def token_recall(answer: Sequence[str], reference: Sequence[str]) -> float:
    return shared_words(answer, reference) / len(reference)


def shared_words(answer: Sequence[str], reference: Sequence[str]) -> int:
    return (Counter(answer) & Counter(reference)).total()
