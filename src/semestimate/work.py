"""Prefill work without a device: how many tokens are computed, and over how much context.

Both sums are enough to price any set of requests on any GPU and model afterwards (``cost``).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """``pairs`` counts (token, earlier token) pairs, the work of attention."""

    tokens: int = 0
    pairs: float = 0.0

    @classmethod
    def between(cls, start: int, end: int) -> Work:
        """The tokens from ``start`` to ``end`` of a prompt whose first ``start`` tokens are served."""
        return cls(end - start, (float(end) ** 2 - float(start) ** 2) / 2)

    def part(self, tokens: int) -> Work:
        """``tokens`` of these, at their mean context."""
        return Work(tokens, self.pairs * tokens / self.tokens if self.tokens else 0.0)

    def __add__(self, other: Work) -> Work:
        return Work(self.tokens + other.tokens, self.pairs + other.pairs)
