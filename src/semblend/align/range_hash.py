"""Hashes of any token range in constant time, for a donor and a recipient side by side. Used by ``equal_runs``.

Two 31-bit polynomial lanes under bases drawn per process, so that no author of prompts can prepare collisions. A
hash only suggests a match; token ids are compared before a run leaves this package.
"""

from __future__ import annotations

import secrets
from typing import Final

import numpy as np
from numpy.typing import NDArray

_PRIMES: Final = np.array([[2147483647], [2147483629]], dtype=np.uint64)
_BASES: Final = np.array([[secrets.randbelow(2**30) + 2**20], [secrets.randbelow(2**30) + 2**20]], dtype=np.uint64)
_ONE: Final = np.uint64(1)


class RangeHash:
    """Prefix hashes of one token sequence, comparable with those of another built for the same ``longest``."""

    __slots__ = ("_powers", "_prefix")

    def __init__(self, tokens: NDArray[np.int64], longest: int) -> None:
        self._powers = _powers(longest)
        terms = (tokens.astype(np.uint64) % _PRIMES + _ONE) % _PRIMES * self._powers[:, : len(tokens)] % _PRIMES
        # Each term is below 2**31, so the plain sum of fewer than 2**32 of them cannot wrap before the reduction.
        self._prefix = np.concatenate([np.zeros((2, 1), np.uint64), np.cumsum(terms, axis=1)], axis=1) % _PRIMES

    def windows(self, width: int) -> NDArray[np.uint64]:
        """The hash of every window of ``width`` tokens, in order of its start."""
        starts = self._prefix.shape[1] - width
        difference = self._prefix[:, width:] + _PRIMES - self._prefix[:, :starts]
        return _packed(difference, self._powers[:, ::-1][:, :starts])

    def ranges(self, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The hash of ``[start, start + length)`` for each pair."""
        difference = self._prefix[:, starts + lengths] + _PRIMES - self._prefix[:, starts]
        return _packed(difference, self._powers[:, self._powers.shape[1] - 1 - starts])


def _packed(difference: NDArray[np.uint64], alignment: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Both lanes in one number. Multiplying by the complementary power makes hashes at different starts comparable."""
    lanes = difference % _PRIMES * alignment % _PRIMES
    packed: NDArray[np.uint64] = lanes[0] << np.uint64(32) | lanes[1]
    return packed


def _powers(longest: int) -> NDArray[np.uint64]:
    """``base ** 0 .. base ** longest``, built by doubling instead of one by one."""
    powers = np.ones((2, 1), dtype=np.uint64)
    step = _BASES % _PRIMES
    while powers.shape[1] <= longest:
        powers = np.concatenate([powers, powers * step % _PRIMES], axis=1)
        step = step * step % _PRIMES
    return powers[:, : longest + 1]
