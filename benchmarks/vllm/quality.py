"""The distance between two teacher-forced readings of one text, position by position. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.vllm.client import Position

FIRST_POSITIONS = 16
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Distance:
    """Between a cold reading and another one of the same text.

    ``kl`` holds KL(cold || other) of the first positions, ``log_loss`` the additional loss of the other reading per
    token of the whole text (its exponential is the PPL ratio), ``top1`` the fraction of positions with the same most
    likely token, ``uncovered`` the mean probability outside the compared tokens.
    """

    kl: tuple[float, ...]
    log_loss: tuple[float, ...]
    top1: float
    uncovered: float

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Distance:
        return cls(tuple(record["kl"]), tuple(record["log_loss"]), record["top1"], record["uncovered"])

    @property
    def mean_kl(self) -> float:
        return sum(self.kl) / len(self.kl)

    @property
    def worst_kl(self) -> float:
        return max(self.kl)

    @property
    def ppl_ratio(self) -> float:
        return math.exp(sum(self.log_loss) / len(self.log_loss))


def distance(cold: Sequence[Position], other: Sequence[Position]) -> Distance:
    pairs = list(zip(cold, other, strict=True))
    kls, uncovered = zip(*(divergence(a.top, b.top) for a, b in pairs[:FIRST_POSITIONS]), strict=True)
    same = [max(a.top, key=a.top.__getitem__) == max(b.top, key=b.top.__getitem__) for a, b in pairs]
    return Distance(
        kls, tuple(a.following - b.following for a, b in pairs), sum(same) / len(same), sum(uncovered) / len(uncovered)
    )


def divergence(cold: dict[int, float], other: dict[int, float]) -> tuple[float, float]:
    """KL over the tokens both readings name, all others in one bucket, and the cold mass of that bucket.

    Merging tokens can only make a divergence smaller, so the bucket's mass is reported with it.
    """
    named = cold.keys() & other.keys()
    total = sum(math.exp(cold[token]) * (cold[token] - other[token]) for token in named)
    cold_rest = max(_TINY, 1.0 - sum(math.exp(cold[token]) for token in named))
    other_rest = max(_TINY, 1.0 - sum(math.exp(other[token]) for token in named))
    total += cold_rest * math.log(cold_rest / other_rest)
    return max(0.0, total), cold_rest


def agreement_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Tokens until two greedy answers differ."""
    for place, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return place
    return min(len(first), len(second))
