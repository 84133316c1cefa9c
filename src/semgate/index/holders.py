"""Who holds a block: compiled open-addressed table from block key to the set of replicas, one bit per slot.

A row is the key and ``ceil(slots / 64)`` words, side by side, so that a look-up costs one cache miss per block. Keys
are hashes already and choose their row themselves; a removed row is closed by shifting back, so there are no
tombstones. 16 bytes a row up to 64 slots, at a load between 3/8 and 3/4: 21 to 43 bytes a block.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semblend.compiled import kernel, kernel_part

WORD_BITS: Final = 64
SMALLEST_ROWS: Final = 1024
_ZERO: Final = np.uint64(0)
_ONE: Final = np.uint64(1)


class Holders(NamedTuple):
    """``rows[i] = (key, word, ...)``, key 0 for a free row; ``used[0]`` counts the others."""

    rows: NDArray[np.uint64]
    used: NDArray[np.int64]


def new_holders(rows: int = SMALLEST_ROWS, words: int = 1) -> Holders:
    return Holders(np.zeros((rows, 1 + words), np.uint64), np.zeros(1, np.int64))


def rows_for(blocks: int) -> int:
    """A power of two that ``blocks`` fill to at most three quarters."""
    return max(SMALLEST_ROWS, 1 << (blocks * 4 // 3).bit_length())


def resized(holders: Holders, rows: int, words: int) -> Holders:
    """The same content in another number of rows or words."""
    fresh = new_holders(rows, words)
    copy_rows(holders, fresh)
    return fresh


@kernel_part
def find_row(holders: Holders, key: np.uint64) -> int:
    """The row of ``key``, or ``-1 - row`` of the free row where it would go. (``int`` alone stays unsigned here.)"""
    mask = len(holders.rows) - 1
    row = int(np.int64(key & np.uint64(mask)))
    while holders.rows[row, 0] != key:
        if holders.rows[row, 0] == _ZERO:
            return -1 - row
        row = (row + 1) & mask
    return row


@kernel_part
def hold(holders: Holders, key: np.uint64, slot: int) -> bool:
    """Set the bit of ``slot``; whether it was not set before. The caller has made room for one more row."""
    row = find_row(holders, key)
    if row < 0:
        row = -1 - row
        holders.rows[row, 0] = key
        holders.used[0] += 1
    word = 1 + slot // 64
    bit = _ONE << np.uint64(slot % 64)
    fresh = bool((holders.rows[row, word] & bit) == _ZERO)
    holders.rows[row, word] |= bit
    return fresh


@kernel_part
def release(holders: Holders, key: np.uint64, slot: int) -> None:
    """Clear the bit of ``slot``; a block that nobody holds any more leaves the table."""
    row = find_row(holders, key)
    if row < 0:
        return
    holders.rows[row, 1 + slot // 64] &= ~(_ONE << np.uint64(slot % 64))
    for word in range(1, holders.rows.shape[1]):
        if holders.rows[row, word] != _ZERO:
            return
    _close(holders, row)


@kernel_part
def _close(holders: Holders, gap: int) -> None:
    """Free a row and move back what was pushed behind it, so that every probe still finds its key."""
    mask = len(holders.rows) - 1
    row = (gap + 1) & mask
    while holders.rows[row, 0] != _ZERO:
        home = int(np.int64(holders.rows[row, 0] & np.uint64(mask)))
        if ((row - home) & mask) >= ((row - gap) & mask):
            holders.rows[gap] = holders.rows[row]
            gap = row
        row = (row + 1) & mask
    holders.rows[gap] = _ZERO
    holders.used[0] -= 1


@kernel
def copy_rows(old: Holders, fresh: Holders) -> None:
    words = min(old.rows.shape[1], fresh.rows.shape[1])
    for row in range(len(old.rows)):
        if old.rows[row, 0] != _ZERO:
            place = -1 - find_row(fresh, old.rows[row, 0])
            for word in range(words):
                fresh.rows[place, word] = old.rows[row, word]
            fresh.used[0] += 1


@kernel
def leading_blocks(
    holders: Holders, keys: NDArray[np.uint64], everyone: NDArray[np.uint64], held: NDArray[np.int32]
) -> int:
    """Per slot, how many leading keys it holds. ``everyone`` has a bit per living slot and is used up."""
    words = len(everyone)
    for block in range(len(keys)):
        row = find_row(holders, keys[block])
        left = _ZERO
        for word in range(words):
            holding = holders.rows[row, 1 + word] & everyone[word] if row >= 0 else _ZERO
            gone = everyone[word] & ~holding
            if gone != _ZERO:
                _settle(gone, word, block, held)
                everyone[word] = holding
            left |= holding
        if left == _ZERO:
            return block
    for word in range(words):
        _settle(everyone[word], word, len(keys), held)
    return len(keys)


@kernel_part
def _settle(bits: np.uint64, word: int, blocks: int, held: NDArray[np.int32]) -> None:
    slot = word * 64
    while bits != _ZERO:
        if bits & _ONE:
            held[slot] = blocks
        bits >>= _ONE
        slot += 1
