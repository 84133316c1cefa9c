"""Anchors: the positions of a prompt that any sufficiently long copy of it must share.

Winnowing (Schleimer, Wilkerson, Aiken 2003) over hashes of GRAM consecutive tokens: in every window of WINDOW grams the
smallest hash is selected. Two prompts that share a run of GUARANTEE = GRAM + WINDOW - 1 tokens share at least one whole
window. The selection depends on the window's content alone, so both select the same position in it: the run is found
whatever its offset and whatever surrounds it. About two in WINDOW + 1 tokens are selected.

Ties matter in periodic text. Both the leftmost and the rightmost minimum are selected, and a donor keeps only the first
and the last of a stretch of equally spaced equal grams (``thin_periodic``): "----" costs two anchors, not thousands.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import HAS_COMPILER, kernel, kernel_part

GRAM: Final = 32
WINDOW: Final = 33
GUARANTEE: Final = GRAM + WINDOW - 1
assert GRAM & (GRAM - 1) == 0

_BASE: Final = np.uint64(0x9E3779B97F4A7C15)
_TOKEN_MIX: Final = np.uint64(0xD6E8FEB86659FD93)
_ORDER_MIX: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT: Final = np.uint64(32)
_ONE: Final = np.uint64(1)
_DROP: Final = np.uint64(pow(int(_BASE), GRAM, 1 << 64))  # weight of the token that leaves the gram


class Anchors(NamedTuple):
    """``positions`` ascending; ``hashes[i]`` identifies the GRAM tokens that start at ``positions[i]``."""

    positions: NDArray[np.int32]
    hashes: NDArray[np.uint64]


def select_anchors(tokens: NDArray[np.uint32], start: int = 0) -> Anchors:
    """The anchors of ``tokens[start:]``, with positions counted from the beginning of ``tokens``."""
    if len(tokens) - start < GUARANTEE:
        return Anchors(np.empty(0, np.int32), np.empty(0, np.uint64))
    if HAS_COMPILER:
        positions, hashes = _select_compiled(tokens, start)
    else:
        positions, hashes = select_vectorised(tokens, start)
    return Anchors(positions, hashes)


def select_vectorised(tokens: NDArray[np.uint32], start: int = 0) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """The same selection with numpy alone: the path without a compiler, and the compiled path's oracle."""
    hashes = _gram_hashes(tokens[start:])
    windows = np.lib.stride_tricks.sliding_window_view(hashes, WINDOW)
    leftmost = windows.argmin(axis=1)
    rightmost = WINDOW - 1 - windows[:, ::-1].argmin(axis=1)
    first = np.arange(len(windows))
    chosen = np.unique(np.concatenate([first + leftmost, first + rightmost]))
    return (chosen + start).astype(np.int32), hashes[chosen]


def thin_periodic(anchors: Anchors) -> Anchors:
    """Drop anchors inside a periodic stretch: same gram before and after at one distance of at most GRAM tokens.

    Grams that overlap or touch at equal distance make the stretch periodic, so any piece of it equals a piece that
    starts at its first anchor and a piece that ends at its last. Only donors are thinned; recipients look up all their
    anchors.
    """
    positions, hashes = anchors
    if len(positions) < 3:
        return anchors
    same = hashes[1:] == hashes[:-1]
    if not same.any():
        return anchors
    gaps = np.diff(positions)
    inside = same[1:] & same[:-1] & (gaps[1:] == gaps[:-1]) & (gaps[1:] <= GRAM)
    if not inside.any():
        return anchors
    keep = np.ones(len(positions), bool)
    keep[1:-1] = ~inside
    return Anchors(positions[keep], hashes[keep])


def _gram_hashes(tokens: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Polynomial hashes of all grams by GRAM multiply-adds over shifted views (unsigned wrap-around is intended)."""
    mixed = (tokens.astype(np.uint64) + _ONE) * _TOKEN_MIX
    mixed ^= mixed >> _SHIFT
    count = len(tokens) - GRAM + 1
    value = np.zeros(count, np.uint64)
    for offset in range(GRAM):
        value *= _BASE
        value += mixed[offset : offset + count]
    value *= _ORDER_MIX
    return np.asarray(value ^ (value >> _SHIFT))


@kernel
def _select_compiled(tokens: NDArray[np.uint32], start: int) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    hashes = _roll(tokens, start)
    chosen = _window_minima(hashes)
    total = 0
    for i in range(len(chosen)):
        total += chosen[i]
    positions = np.empty(total, np.int32)
    selected = np.empty(total, np.uint64)
    n = 0
    for i in range(len(chosen)):
        if chosen[i]:
            positions[n] = i + start
            selected[n] = hashes[i]
            n += 1
    return positions, selected


@kernel_part
def _roll(tokens: NDArray[np.uint32], start: int) -> NDArray[np.uint64]:
    hashes = np.empty(len(tokens) - start - GRAM + 1, np.uint64)
    mixed = np.empty(GRAM, np.uint64)
    value = np.uint64(0)
    for i in range(len(tokens) - start):
        token = (np.uint64(tokens[start + i]) + _ONE) * _TOKEN_MIX
        token ^= token >> _SHIFT
        value = value * _BASE + token
        place = i & (GRAM - 1)
        if i >= GRAM:
            value -= mixed[place] * _DROP
        mixed[place] = token
        if i >= GRAM - 1:
            order = value * _ORDER_MIX
            hashes[i - GRAM + 1] = order ^ (order >> _SHIFT)
    return hashes


@kernel_part
def _window_minima(hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Marks the leftmost and the rightmost minimum of every window."""
    chosen = np.zeros(len(hashes), np.bool_)
    left = -1
    right = -1
    for first in range(len(hashes) - WINDOW + 1):
        last = first + WINDOW - 1
        if left < first:  # the minimum left the window: scan all of it again
            left = first
            right = first
            begin = first + 1
        else:
            begin = last
        for j in range(begin, last + 1):
            if hashes[j] < hashes[left]:
                left = j
                right = j
            elif hashes[j] == hashes[left]:
                right = j
        chosen[left] = True
        chosen[right] = True
    return chosen
