"""Brute force over every window of every donor: what a recipient could reuse at all. Shares nothing with the planner.

A position is reusable when some window of ``window`` tokens around it occurs in a donor. Windows are looked up by a
64-bit polynomial hash in one sorted array; equal windows always have equal hashes, and every hit is compared token by
token, so the answer is exact in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

DEFAULT_WINDOW = 64
_BASE = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True, slots=True)
class Answer:
    """``reusable[i]``: position ``i`` can be reused. ``runs``: maximal matches ``(start, end)``, none in another."""

    reusable: Mask
    runs: tuple[tuple[int, int], ...]


class Oracle:
    """All windows of the live donors of one namespace."""

    def __init__(self, donors: Sequence[Tokens], window: int = DEFAULT_WINDOW) -> None:
        self._window = window
        self._tokens = np.concatenate(donors) if donors else np.zeros(0, dtype=np.uint32)
        lengths = np.asarray([donor.size for donor in donors], dtype=np.int64)
        self._ends = np.cumsum(lengths)
        starts = np.zeros(max(0, self._tokens.size - window + 1), dtype=np.bool_)
        for end, length in zip(self._ends.tolist(), lengths.tolist(), strict=True):
            if length >= window:
                starts[end - length : end - window + 1] = True
        positions = np.flatnonzero(starts).astype(np.int64)
        hashes = window_hashes(self._tokens, window)[positions]
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._positions = hashes[order], positions[order]

    def ask(self, recipient: Tokens, first: int = 0, stop: int | None = None) -> Answer:
        """What of ``recipient`` is reusable in ``[first, stop)``; by default all but its last token."""
        stop = recipient.size - 1 if stop is None else stop
        present = self._present(recipient)
        reusable = _spread(present, recipient.size, self._window)
        reusable[:first] = False
        reusable[stop:] = False
        clipped = ((max(start, first), min(end, stop)) for start, end in self._maximal_runs(recipient, present))
        return Answer(reusable, tuple((start, end) for start, end in clipped if start < end))

    def _present(self, recipient: Tokens) -> Mask:
        """For every window start of the recipient: does this window occur?"""
        hashes = window_hashes(recipient, self._window)
        low = np.searchsorted(self._hashes, hashes, side="left")
        high = np.searchsorted(self._hashes, hashes, side="right")
        present = high > low
        for start in np.flatnonzero(present).tolist():
            if not self._equal_at(recipient, start, int(self._positions[low[start]])):
                present[start] = self._occurrences(recipient, start).size > 0
        return present

    def _equal_at(self, recipient: Tokens, start: int, position: int) -> bool:
        mine = recipient[start : start + self._window]
        return bool(np.array_equal(mine, self._tokens[position : position + self._window]))

    def _occurrences(self, recipient: Tokens, start: int) -> npt.NDArray[np.int64]:
        """Places in the donors that hold the recipient's window at ``start``, compared as tokens."""
        sought = window_hashes(recipient[start : start + self._window], self._window)[0]
        low, high = (int(np.searchsorted(self._hashes, sought, side=side)) for side in ("left", "right"))
        found = self._positions[low:high]
        return np.asarray([p for p in found.tolist() if self._equal_at(recipient, start, p)], dtype=np.int64)

    def _maximal_runs(self, recipient: Tokens, present: Mask) -> list[tuple[int, int]]:
        """Every maximal match that no other contains, left to right.

        After the matches seen so far reach ``end``, any other one worth having reaches beyond it, and therefore holds
        the window that ends one token further. Looking at that window's occurrences alone misses none.
        """
        starts = np.flatnonzero(present)
        runs: list[tuple[int, int]] = []
        probe = 0
        while True:
            at = int(np.searchsorted(starts, probe))
            if at == starts.size:
                return runs
            probe = int(starts[at])
            reach = [self._extend(recipient, probe, place) for place in self._occurrences(recipient, probe).tolist()]
            runs += _not_contained(reach)
            probe = max(end for _, end in reach) - self._window + 1

    def _extend(self, recipient: Tokens, start: int, position: int) -> tuple[int, int]:
        """The maximal match on the diagonal of an occurrence, within one donor."""
        donor = int(np.searchsorted(self._ends, position, side="right"))
        donor_first = int(self._ends[donor - 1]) if donor else 0
        right = min(recipient.size - start, int(self._ends[donor]) - position)
        left = min(start, position - donor_first)
        after = recipient[start : start + right] != self._tokens[position : position + right]
        before = (recipient[start - left : start] != self._tokens[position - left : position])[::-1]
        return start - _first_true(before), start + _first_true(after)


def window_hashes(tokens: Tokens, window: int) -> npt.NDArray[np.uint64]:
    """A polynomial hash modulo 2**64 of every window, by doubling. No windows when there are too few tokens."""
    if tokens.size < window:
        return np.zeros(0, dtype=np.uint64)
    with np.errstate(over="ignore"):
        # The tokens are mixed first: modulo a power of two a plain polynomial would see too little of the high bits.
        mixed = (tokens.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
        power_hash, power = mixed ^ (mixed >> np.uint64(29)), _BASE
        size, rest = 1, window
        total, covered = np.zeros(tokens.size, dtype=np.uint64), 0
        while True:
            if rest & 1:
                total = total[: tokens.size - covered - size + 1] * power + power_hash[covered:][: total.size]
                total = total[: tokens.size - covered - size + 1]
                covered += size
            rest >>= 1
            if not rest:
                return total[: tokens.size - window + 1]
            power_hash = power_hash[:-size] * power + power_hash[size:]
            power, size = power * power, size * 2


def _spread(present: Mask, size: int, window: int) -> Mask:
    """Positions covered by the windows whose starts are marked."""
    edges = np.zeros(size + 1, dtype=np.int64)
    starts = np.flatnonzero(present)
    np.add.at(edges, starts, 1)
    np.add.at(edges, starts + window, -1)
    covered: Mask = np.cumsum(edges[:size]) > 0
    return covered


def _not_contained(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    furthest = -1
    for start, end in sorted(set(runs), key=lambda run: (run[0], -run[1])):
        if end > furthest:
            kept.append((start, end))
            furthest = end
    return kept


def _first_true(differs: Mask) -> int:
    return int(np.argmax(differs)) if differs.any() else int(differs.size)
