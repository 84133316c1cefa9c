"""Every 64-token window of earlier traffic: finds the tokens of a new prompt inside a run of at least that length.

Independent of the planner and cheap enough for whole traces: windows are looked up by a rolling hash in a few sorted
arrays and then compared token by token, so a hash collision can only under-count.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Hashes = NDArray[np.uint64]

RUN_TOKENS: Final = 64
_BASE: Final = 0x9E3779B97F4A7C15
_INVERSE: Final = pow(_BASE, -1, 2**64)
_COMPARED_AT_ONCE: Final = 8192


class WindowIndex:
    """Append-only. Levels of sorted hashes are merged as they grow: adding is amortized, look-ups see few levels."""

    def __init__(self, run_tokens: int = RUN_TOKENS) -> None:
        self._run = run_tokens
        self._tokens: Ids = np.empty(1024, np.int64)
        self._length = 0
        self._levels: list[tuple[Hashes, Ids]] = []

    def add(self, ids: Ids) -> None:
        hashes = window_hashes(ids, self._run)
        start = self._append(ids)
        if not len(hashes):
            return
        new = np.flatnonzero(self._find(hashes) < 0)
        distinct, first = np.unique(hashes[new], return_index=True)
        if len(distinct):
            self._levels.append((distinct, start + new[first]))
            self._merge_levels()

    def covered(self, ids: Ids) -> NDArray[np.bool_]:
        """Per token: does it lie in a run of at least ``run_tokens`` that earlier traffic holds?"""
        hashes = window_hashes(ids, self._run)
        edges = np.zeros(len(ids) + 1, np.int64)
        if len(hashes):
            places = self._find(hashes)
            found = np.flatnonzero(places >= 0)
            equal = found[self._equal(ids, found, places[found])]
            np.add.at(edges, equal, 1)
            np.add.at(edges, equal + self._run, -1)
        return np.cumsum(edges[:-1]) > 0

    def _append(self, ids: Ids) -> int:
        start, needed = self._length, self._length + len(ids)
        if needed > len(self._tokens):
            grown = np.empty(max(needed, 2 * len(self._tokens)), np.int64)
            grown[:start] = self._tokens[:start]
            self._tokens = grown
        self._tokens[start:needed] = ids
        self._length = needed
        return start

    def _find(self, hashes: Hashes) -> Ids:
        places = np.full(len(hashes), -1, np.int64)
        for known, positions in self._levels:
            slots = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            places = np.where((places < 0) & (known[slots] == hashes), positions[slots], places)
        return places

    def _equal(self, ids: Ids, windows: Ids, places: Ids) -> NDArray[np.bool_]:
        steps = np.arange(self._run)
        parts = [
            (
                ids[windows[i : i + _COMPARED_AT_ONCE, None] + steps]
                == self._tokens[places[i : i + _COMPARED_AT_ONCE, None] + steps]
            ).all(1)
            for i in range(0, len(windows), _COMPARED_AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.bool_)

    def _merge_levels(self) -> None:
        while len(self._levels) > 1 and len(self._levels[-2][0]) < 2 * len(self._levels[-1][0]):
            (a, at_a), (b, at_b) = self._levels[-2:]
            hashes, positions = np.concatenate([a, b]), np.concatenate([at_a, at_b])
            order = np.argsort(hashes, kind="stable")
            self._levels[-2:] = [(hashes[order], positions[order])]


def window_hashes(ids: Ids, run_tokens: int) -> Hashes:
    """``sum(mix(id[i+j]) * BASE**j)`` modulo 2**64 for every window, from prefix sums of the inverse powers."""
    if len(ids) < run_tokens:
        return np.empty(0, np.uint64)
    mixed = _mix(ids.astype(np.uint64))
    powers = _powers(_BASE, len(ids))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed * powers)])
    count = len(ids) - run_tokens + 1
    hashes: Hashes = (sums[run_tokens:] - sums[:count]) * _powers(_INVERSE, count)
    return hashes


def _powers(base: int, count: int) -> Hashes:
    factors = np.full(count, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)


def _mix(values: Hashes) -> Hashes:
    """Splitmix64's finaliser: neighbouring ids must not give neighbouring terms."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
