"""Hit ratio over cache size, in one pass and bounded memory: LRU stack distances of sampled keys (SHARDS, fixed size).

A key is an engine block with everything before it (the prefix cache) or a window digest (donors). At most ``MAX_KEYS``
keys are followed; when there are more, half of them, chosen by hash, are dropped and the others count twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part

MAX_KEYS: Final = 1 << 15
_STEPS: Final = 4  # points per doubling of the cache size
_OCTAVES: Final = 48
_TIMES: Final = 4 * MAX_KEYS
_NONE: Final = np.uint64(0)
_ONE: Final = np.uint64(1)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """An LRU cache of ``capacity_tokens`` would have served ``hit_share`` of the prompt tokens."""

    capacity_tokens: int
    hit_share: float


class CacheCurve:
    """Feed the keys of one request after another, with the tokens each stands for."""

    def __init__(self) -> None:
        self._keys = np.zeros(4 * MAX_KEYS, np.uint64)
        self._times = np.zeros(4 * MAX_KEYS, np.int64)
        self._weights = np.zeros(4 * MAX_KEYS, np.int64)
        self._tree = np.zeros(_TIMES + 1, np.int64)
        self._state = np.zeros(3, np.int64)  # keys held, time, shift
        self._histogram = np.zeros(_STEPS * _OCTAVES, np.float64)
        self._total = np.zeros(1, np.float64)  # tokens of all sampled keys, scaled up

    @property
    def shift(self) -> int:
        """One key in 2**shift is followed."""
        return int(self._state[2])

    def add(self, keys: NDArray[np.uint64], tokens: NDArray[np.int32]) -> None:
        """First key first. The last is touched first, as engines free blocks: leaves go before their parents."""
        columns = (self._keys, self._times, self._weights, self._tree, self._state, self._histogram, self._total)
        at = len(keys)
        while at > 0:
            at = int(_touch(*columns, keys, tokens, at))
            if at > 0 or self._state[0] > MAX_KEYS:
                self._compact()

    def points(self, unlimited_share: float | None = None) -> tuple[CurvePoint, ...]:
        """Ascending, up to the size from which a larger cache serves nothing more.

        ``unlimited_share`` is what a cache without limits serves, if it is known exactly; the curve then ends there.
        """
        if not self._histogram.any():
            return ()
        served = np.cumsum(self._histogram)
        prompt_tokens = self._total[0] if unlimited_share is None else served[-1] / max(unlimited_share, 1e-12)
        first, last = np.flatnonzero(self._histogram)[[0, -1]]
        by_size = {
            int(2.0 ** ((step + 1) / _STEPS) + 1e-6): min(1.0, float(served[step] / prompt_tokens))
            for step in range(int(first), int(last) + 1)
        }
        return tuple(CurvePoint(size, share) for size, share in by_size.items())

    def _compact(self) -> None:
        """Number the times from 1 again; above ``MAX_KEYS`` keys, drop half of them."""
        if self._state[0] > MAX_KEYS:
            self._state[2] += 1
        held = (self._keys != _NONE) & ((self._keys & np.uint64((1 << int(self._state[2])) - 1)) == _NONE)
        keys, times, weights = self._keys[held], self._times[held], self._weights[held]
        order = np.argsort(times)
        self._keys[:], self._tree[:] = 0, 0
        self._state[0], self._state[1] = len(keys), len(keys)
        _place(self._keys, self._times, self._weights, self._tree, keys[order], weights[order])


@kernel_part
def _slot(table: NDArray[np.uint64], key: np.uint64) -> int:
    mask = np.uint64(len(table) - 1)
    slot = (key >> np.uint64(24)) & mask
    while table[slot] != _NONE and table[slot] != key:
        slot = (slot + _ONE) & mask
    return int(slot)


@kernel_part
def _sum_to(tree: NDArray[np.int64], at: int) -> int:
    total = 0
    while at > 0:
        total += tree[at]
        at -= at & -at
    return total


@kernel_part
def _add_at(tree: NDArray[np.int64], at: int, weight: int) -> None:
    while at < len(tree):
        tree[at] += weight
        at += at & -at


@kernel
def _touch(
    table: NDArray[np.uint64],
    times: NDArray[np.int64],
    weights: NDArray[np.int64],
    tree: NDArray[np.int64],
    state: NDArray[np.int64],
    histogram: NDArray[np.float64],
    total: NDArray[np.float64],
    keys: NDArray[np.uint64],
    tokens: NDArray[np.int32],
    end: int,
) -> int:
    """From the last key to the first. Returns how many are left when the times or the room for keys are used up."""
    rest = np.uint64((1 << state[2]) - 1)
    scale = float(1 << state[2])
    at = end
    while at > 0:
        key = keys[at - 1]
        if key & rest != _NONE or key == _NONE:
            at -= 1
            continue
        if state[1] + 1 >= len(tree) or 2 * state[0] >= len(table):
            return at
        at -= 1
        slot = _slot(table, key)
        total[0] += scale * tokens[at]
        state[1] += 1
        if table[slot] == _NONE:
            table[slot] = key
            weights[slot] = tokens[at]
            state[0] += 1
        else:
            distance = scale * (_sum_to(tree, state[1] - 1) - _sum_to(tree, times[slot] - 1))
            step = int(np.ceil(_STEPS * np.log2(max(distance, 1.0)))) - 1
            histogram[min(max(step, 0), len(histogram) - 1)] += scale * tokens[at]
            _add_at(tree, times[slot], -weights[slot])
        times[slot] = state[1]
        _add_at(tree, state[1], weights[slot])
    return 0


@kernel
def _place(
    table: NDArray[np.uint64],
    times: NDArray[np.int64],
    weights: NDArray[np.int64],
    tree: NDArray[np.int64],
    keys: NDArray[np.uint64],
    of: NDArray[np.int64],
) -> None:
    for at in range(len(keys)):
        slot = _slot(table, keys[at])
        table[slot] = keys[at]
        times[slot] = at + 1
        weights[slot] = of[at]
        _add_at(tree, at + 1, of[at])
