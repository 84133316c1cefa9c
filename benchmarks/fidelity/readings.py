"""A reading is a model's distribution at each position of a forced text. Two readings in, their distance out.

Distributions are complete, not only the most likely tokens: 196 KB per position for 49K tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

POSITIONS = 16  # compared by KL; log-loss and the likeliest token are compared over the whole text


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """``logprobs`` [positions, vocabulary] of the first positions; ``loss`` and ``top`` of all of them."""

    logprobs: NDArray[np.float32]
    loss: NDArray[np.float64]
    top: NDArray[np.int64]


def reading_of(logprobs: NDArray[np.float32], text: NDArray[np.int64]) -> Reading:
    loss = -logprobs[np.arange(len(text)), text].astype(np.float64)
    return Reading(logprobs[:POSITIONS], loss, logprobs.argmax(axis=1).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Gap:
    """``right`` says whether greedy decoding gives the right answer: None where the right one is not known."""

    kl: tuple[float, ...]
    log_loss: float
    top1: float
    cold_right: bool | None
    right: bool | None

    @property
    def mean_kl(self) -> float:
        return sum(self.kl) / len(self.kl)

    @property
    def ppl_ratio(self) -> float:
        return math.exp(self.log_loss)


def gap(cold: Reading, other: Reading, text: NDArray[np.int64], answer_tokens: int) -> Gap:
    """Forced tokens equal greedy ones as long as each is the likeliest, so rightness needs no decoding."""
    p, q = cold.logprobs.astype(np.float64), other.logprobs.astype(np.float64)
    kl = np.maximum(0.0, (np.exp(p) * (p - q)).sum(axis=1))
    right = [bool((r.top[:answer_tokens] == text[:answer_tokens]).all()) for r in (cold, other)]
    return Gap(
        tuple(kl.tolist()),
        float((other.loss - cold.loss).mean()),
        float((cold.top == other.top).mean()),
        right[0] if answer_tokens else None,
        right[1] if answer_tokens else None,
    )
