"""Winnowing (Schleimer, Wilkerson, Aiken 2003): values chosen by their content alone, so that copies choose the same.

``gram_hashes`` gives one hash per run of ``gram`` tokens, ``ending_hashes`` one per token; ``window_minima`` marks the
smallest of every ``window`` consecutive values. Two sequences that share ``window`` consecutive values share a marked
one, wherever it occurs and whatever surrounds them. About two in ``window`` + 1 values are marked. In periodic text
values tie: both the leftmost and the rightmost minimum of a window are marked.

The planner's anchors and the counter of trace digests share these.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import HAS_COMPILER, kernel

_BASE: Final = np.uint64(0x9E3779B97F4A7C15)
_TOKEN_MIX: Final = np.uint64(0xD6E8FEB86659FD93)
_ORDER_MIX: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT: Final = np.uint64(32)
_ONE: Final = np.uint64(1)


def gram_hashes(tokens: NDArray[np.uint32], gram: int) -> NDArray[np.uint64]:
    """``hashes[i]`` identifies ``tokens[i : i + gram]``. Empty if there are fewer tokens."""
    if len(tokens) < gram:
        return np.empty(0, np.uint64)
    return ending_hashes(tokens, gram)[gram - 1 :] if HAS_COMPILER else gram_hashes_vectorised(tokens, gram)


def ending_hashes(tokens: NDArray[np.uint32], gram: int) -> NDArray[np.uint64]:
    """One hash per token, of the gram that ends there; the first ``gram`` - 1 identify all tokens up to theirs."""
    if HAS_COMPILER:
        return _roll(tokens, gram, np.uint64(pow(int(_BASE), gram, 1 << 64)))
    opening = [gram_hashes_vectorised(tokens[:length], length) for length in range(1, min(gram, len(tokens) + 1))]
    whole = [gram_hashes_vectorised(tokens, gram)] if len(tokens) >= gram else []
    return np.concatenate([np.empty(0, np.uint64), *opening, *whole])


def gram_hashes_vectorised(tokens: NDArray[np.uint32], gram: int) -> NDArray[np.uint64]:
    """The same with numpy alone, by ``gram`` multiply-adds over shifted views (unsigned wrap-around is intended)."""
    mixed = (tokens.astype(np.uint64) + _ONE) * _TOKEN_MIX
    mixed ^= mixed >> _SHIFT
    count = len(tokens) - gram + 1
    value = np.zeros(count, np.uint64)
    for offset in range(gram):
        value *= _BASE
        value += mixed[offset : offset + count]
    value *= _ORDER_MIX
    return np.asarray(value ^ (value >> _SHIFT))


def window_minima(values: NDArray[np.uint64], window: int) -> NDArray[np.int64]:
    """Positions of the leftmost and the rightmost minimum of every window, ascending. Empty below one window."""
    if len(values) < window:
        return np.empty(0, np.int64)
    return np.flatnonzero(_mark_minima(values, window)) if HAS_COMPILER else window_minima_vectorised(values, window)


def window_minima_vectorised(values: NDArray[np.uint64], window: int) -> NDArray[np.int64]:
    """The same with numpy alone: the path without a compiler, and the compiled path's oracle."""
    windows = np.lib.stride_tricks.sliding_window_view(values, window)
    leftmost = windows.argmin(axis=1)
    rightmost = window - 1 - windows[:, ::-1].argmin(axis=1)
    first = np.arange(len(windows))
    return np.unique(np.concatenate([first + leftmost, first + rightmost]))


@kernel
def _roll(tokens: NDArray[np.uint32], gram: int, drop: np.uint64) -> NDArray[np.uint64]:
    """``drop`` is the weight of the token that leaves the gram."""
    hashes = np.empty(len(tokens), np.uint64)
    value = np.uint64(0)
    for i in range(len(tokens)):
        token = (np.uint64(tokens[i]) + _ONE) * _TOKEN_MIX
        token ^= token >> _SHIFT
        value = value * _BASE + token
        if i >= gram:
            left = (np.uint64(tokens[i - gram]) + _ONE) * _TOKEN_MIX
            left ^= left >> _SHIFT
            value -= left * drop
        order = value * _ORDER_MIX
        hashes[i] = order ^ (order >> _SHIFT)
    return hashes


@kernel
def _mark_minima(values: NDArray[np.uint64], window: int) -> NDArray[np.bool_]:
    chosen = np.zeros(len(values), np.bool_)
    left = -1
    right = -1
    for first in range(len(values) - window + 1):
        last = first + window - 1
        if left < first:  # the minimum left the window: scan all of it again
            left = first
            right = first
            begin = first + 1
        else:
            begin = last
        for j in range(begin, last + 1):
            if values[j] < values[left]:
                left = j
                right = j
            elif values[j] == values[left]:
                right = j
        chosen[left] = True
        chosen[right] = True
    return chosen
