"""Which replicas hold a block: compiled open-addressed table from block key to a set of replicas, one bit each.

A row is the key and its words of bits, side by side, so that a look-up costs one cache miss per block. Keys are hashes
already and index their row directly; a removed row is closed by shifting back, so there are no tombstones. 16 bytes per
row up to 64 bits, at a load between 3/8 and 3/4: 21 to 43 bytes per block. A table that grows or shrinks is moved a few
rows at a time; meanwhile both exist, and a key that is not in the new one costs a second miss.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from semgate.index.pages import zeros

WORD_BITS: Final = 64
MIN_ROWS: Final = 1024
USED, MOVED = range(2)  # positions in `Holders.state`
_ZERO: Final = np.uint64(0)
_ONE: Final = np.uint64(1)


class Holders(NamedTuple):
    """``rows[i] = (key, word, ...)``, key 0 for a free row. A block has its bits in ``rows`` or in ``old``, never both.

    In ``old`` keys stay in place, as links of the probes; a row without bits means nothing. ``state`` counts the
    blocks of both and the rows of ``old`` that were moved.
    """

    rows: NDArray[np.uint64]
    old: NDArray[np.uint64]
    state: NDArray[np.int64]


def new_holders(rows: int = MIN_ROWS, words: int = 1) -> Holders:
    return Holders(zeros((rows, 1 + words), np.uint64), _nothing(), np.zeros(2, np.int64))


def rows_for(blocks: int) -> int:
    """The smallest power of two that ``blocks`` fill to at most three quarters."""
    return max(MIN_ROWS, 1 << (blocks * 4 // 3).bit_length())


def begin_move(holders: Holders, rows: int, words: int) -> Holders:
    """The same content, to be moved to another number of rows or words by ``move_rows``. No move may be under way."""
    holders.state[MOVED] = 0
    return Holders(zeros((rows, 1 + words), np.uint64), holders.rows, holders.state)


def is_moving(holders: Holders) -> bool:
    return len(holders.old) > 1


def moved(holders: Holders) -> Holders:
    """Without the old table, once all its rows were moved."""
    return holders._replace(old=_nothing()) if holders.state[MOVED] >= len(holders.old) else holders


def _nothing() -> NDArray[np.uint64]:
    return np.zeros((1, 2), np.uint64)


@kernel_part
def find_row(rows: NDArray[np.uint64], key: np.uint64) -> int:
    """The row of ``key``, or ``-1 - row`` of the free row where it would go. (``int`` alone stays unsigned here.)"""
    mask = len(rows) - 1
    row = int(np.int64(key & np.uint64(mask)))
    while rows[row, 0] != key:
        if rows[row, 0] == _ZERO:
            return -1 - row
        row = (row + 1) & mask
    return row


@kernel_part
def _is_held(rows: NDArray[np.uint64], row: int) -> bool:
    bits = _ZERO
    for word in range(1, rows.shape[1]):
        bits |= rows[row, word]
    return bool(bits != _ZERO)


@kernel_part
def _move_row(holders: Holders, old_row: int, row: int) -> None:
    """Bits of an old row to a free one of the new table."""
    holders.rows[row, 0] = holders.old[old_row, 0]
    for word in range(1, holders.old.shape[1]):
        holders.rows[row, word] = holders.old[old_row, word]
        holders.old[old_row, word] = _ZERO


@kernel_part
def hold(holders: Holders, key: np.uint64, bit: int) -> bool:
    """Set a bit. Returns whether it was clear before. The caller has made room for one more row."""
    row = find_row(holders.rows, key)
    if row < 0:
        row = -1 - row
        old_row = find_row(holders.old, key) if len(holders.old) > 1 else -1
        if old_row >= 0 and _is_held(holders.old, old_row):
            _move_row(holders, old_row, row)
        else:
            holders.rows[row, 0] = key
            holders.state[USED] += 1
    word = 1 + bit // 64
    mask = _ONE << np.uint64(bit % 64)
    fresh = bool((holders.rows[row, word] & mask) == _ZERO)
    holders.rows[row, word] |= mask
    return fresh


@kernel_part
def release(holders: Holders, key: np.uint64, bit: int) -> None:
    """Clear a bit; a block without any holder leaves the table."""
    word = 1 + bit // 64
    mask = ~(_ONE << np.uint64(bit % 64))
    row = find_row(holders.rows, key)
    if row >= 0:
        holders.rows[row, word] &= mask
        if not _is_held(holders.rows, row):
            _close(holders, row)
        return
    row = find_row(holders.old, key) if len(holders.old) > 1 else -1
    if row >= 0 and word < holders.old.shape[1] and _is_held(holders.old, row):
        holders.old[row, word] &= mask
        if not _is_held(holders.old, row):
            holders.state[USED] -= 1


@kernel_part
def _close(holders: Holders, gap: int) -> None:
    """Free a row and move displaced rows back, so that every probe still finds its key."""
    mask = len(holders.rows) - 1
    row = (gap + 1) & mask
    while holders.rows[row, 0] != _ZERO:
        home = int(np.int64(holders.rows[row, 0] & np.uint64(mask)))
        if ((row - home) & mask) >= ((row - gap) & mask):
            holders.rows[gap] = holders.rows[row]
            gap = row
        row = (row + 1) & mask
    holders.rows[gap] = _ZERO
    holders.state[USED] -= 1


@kernel
def move_rows(holders: Holders, count: int) -> None:
    """Move the next rows of the old table."""
    begin = holders.state[MOVED]
    end = min(begin + count, len(holders.old))
    for row in range(begin, end):
        if holders.old[row, 0] != _ZERO and _is_held(holders.old, row):
            _move_row(holders, row, -1 - find_row(holders.rows, holders.old[row, 0]))
    holders.state[MOVED] = end


@kernel
def leading_blocks(
    holders: Holders, keys: NDArray[np.uint64], remaining: NDArray[np.uint64], held: NDArray[np.int32]
) -> int:
    """Per bit, how many leading keys it holds. ``remaining`` has the requested bits and is consumed."""
    words = len(remaining)
    for block in range(len(keys)):
        rows = holders.rows
        row = find_row(rows, keys[block])
        if row < 0 and len(holders.old) > 1:
            rows = holders.old
            row = find_row(rows, keys[block])
        left = _ZERO
        for word in range(words):
            holding = rows[row, 1 + word] & remaining[word] if row >= 0 and 1 + word < rows.shape[1] else _ZERO
            gone = remaining[word] & ~holding
            if gone != _ZERO:
                _set_blocks(gone, word, block, held)
                remaining[word] = holding
            left |= holding
        if left == _ZERO:
            return block
    for word in range(words):
        _set_blocks(remaining[word], word, len(keys), held)
    return len(keys)


@kernel_part
def _set_blocks(bits: np.uint64, word: int, blocks: int, held: NDArray[np.int32]) -> None:
    bit = word * 64
    while bits != _ZERO:
        if bits & _ONE:
            held[bit] = blocks
        bits >>= _ONE
        bit += 1
