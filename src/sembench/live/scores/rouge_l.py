"""ROUGE-L: the longest common subsequence of words, as the harmonic mean of its shares of answer and reference."""

from __future__ import annotations

from collections.abc import Sequence

from rapidfuzz.distance import LCSseq


def rouge_l(answer: Sequence[str], reference: Sequence[str]) -> float:
    return 2 * LCSseq.similarity(answer, reference) / (len(answer) + len(reference))
