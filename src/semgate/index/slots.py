"""Shared by both indexes: slots of replicas, one table of holders, one bounded map per replica, growth.

No call takes longer than its own blocks need: tables that are too small are moved, and blocks of a cleared replica are
released, a few rows with every block stored and from ``tidy``, which the owner calls periodically. At 16 replicas of
2^20 blocks the longest call is a few milliseconds (``python -m benchmarks.router.index.pauses`` prints it).
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError
from semgate.index.held import COUNT, Held, grown, held_bytes, move_places, new_held, release_some, without_old_index
from semgate.index.holders import (
    MIN_ROWS,
    USED,
    WORD_BITS,
    begin_move,
    is_moving,
    leading_blocks,
    move_rows,
    moved,
    new_holders,
    rows_for,
)

MIN_BOUND: Final = 16
MAX_BOUND: Final = 1 << 30

# Work done with each block stored. Sixteen rows empty a table before the one it moves to is full, even to an eighth.
ROWS_PER_BLOCK: Final = 16
RELEASED_PER_BLOCK: Final = 4
CLEARED_AT_ONCE_BLOCKS: Final = 2048  # half a millisecond
SPARE_BITS: Final = 8  # for replicas that are cleared while their former blocks are still being released
_NO_BIT: Final = -1


class SlotTable:
    """Replicas by slot. A slot has a bit in the table of holders, and gets another one when it is cleared."""

    def __init__(self, max_blocks_per_replica: int, *, stamped: bool = False) -> None:
        if not MIN_BOUND <= max_blocks_per_replica <= MAX_BOUND:
            raise ConfigurationError(
                f"max_blocks_per_replica is {max_blocks_per_replica}; it must be between {MIN_BOUND} and {MAX_BOUND}"
            )
        self.max_blocks_per_replica = max_blocks_per_replica
        self.holders = new_holders()
        self._stamped = stamped
        self._held: list[Held | None] = []
        self._bits = np.empty(0, np.int64)
        self._free_bits = list(range(WORD_BITS))
        self._living = np.zeros(1, np.uint64)
        self._leaving: deque[tuple[Held, int]] = deque()

    def __len__(self) -> int:
        """Slots, including those free for reuse."""
        return len(self._held)

    def held(self, slot: int) -> Held:
        held = self._held[slot] if 0 <= slot < len(self._held) else None
        if held is None:
            raise KeyError(f"no replica has slot {slot}")
        return held

    def bit(self, slot: int) -> int:
        return int(self._bits[slot])

    def slots(self) -> list[int]:
        return [slot for slot, held in enumerate(self._held) if held is not None]

    def add(self) -> int:
        fresh = new_held(self.max_blocks_per_replica, stamped=self._stamped)
        if None in self._held:
            slot = self._held.index(None)
            self._held[slot] = fresh
        else:
            slot = len(self._held)
            self._held.append(fresh)
            self._bits = np.append(self._bits, _NO_BIT)
        if len(self._free_bits) <= SPARE_BITS:
            self._widen()
        self._take_bit(slot)
        return slot

    def remove(self, slot: int) -> None:
        self._release(slot)
        self._held[slot] = None
        self.tidy(0)

    def clear(self, slot: int) -> None:
        """Appears empty immediately; entries are removed incrementally."""
        self._release(slot)
        self._held[slot] = new_held(self.max_blocks_per_replica, stamped=self._stamped)
        self._take_bit(slot)
        self.tidy(0)

    def make_room(self, slot: int, blocks: int) -> Held:
        """The replica's map, with space for that many more blocks in it and among the holders."""
        self.tidy(blocks)
        held = self.held(slot)
        if len(held.old_places) > 1:
            move_places(held, ROWS_PER_BLOCK * blocks)
            held = self._held[slot] = without_old_index(held)
        needed = min(int(held.state[COUNT]) + blocks, self.max_blocks_per_replica)
        held = self._held[slot] = grown(held, needed, self.max_blocks_per_replica)
        rows = rows_for(self.distinct_blocks() + blocks)
        if rows > len(self.holders.rows):
            self._move_to(rows)
        return held

    def tidy(self, blocks: int) -> bool:
        """Advance pending work by that many blocks. Returns whether any is left."""
        if self._leaving:
            held, bit = self._leaving[0]
            release_some(self.holders, held, bit, RELEASED_PER_BLOCK * blocks)
            if not held.state[COUNT]:
                self._leaving.popleft()
                self._free_bits.append(bit)
        if is_moving(self.holders) and self.distinct_blocks():
            move_rows(self.holders, ROWS_PER_BLOCK * blocks)
            self.holders = moved(self.holders)
        if not self._leaving and not (is_moving(self.holders) and self.distinct_blocks()):
            self._shrink()
        return bool(self._leaving) or is_moving(self.holders)

    def blocks(self, slot: int) -> int:
        return int(self.held(slot).state[COUNT])

    def longest(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Leading blocks held, per slot; a free slot holds none."""
        by_bit = np.zeros(WORD_BITS * len(self._living) + 1, np.int32)  # the last one is for slots without a bit
        leading_blocks(self.holders, keys, self._living.copy(), by_bit)
        return by_bit[self._bits]

    def distinct_blocks(self) -> int:
        """Including those that only a cleared replica held and that are still being released."""
        return int(self.holders.state[USED])

    def state_bytes(self) -> int:
        """Bytes of all tables, spare space included."""
        living = [held for held in self._held if held is not None]
        leaving = [held for held, _ in self._leaving]
        old_bytes = self.holders.old.nbytes if is_moving(self.holders) else 0
        return self.holders.rows.nbytes + old_bytes + sum(map(held_bytes, living + leaving))

    def _release(self, slot: int) -> None:
        held, bit = self.held(slot), self.bit(slot)
        self._living[bit // WORD_BITS] &= ~np.uint64(1 << bit % WORD_BITS)
        self._bits[slot] = _NO_BIT
        if held.state[COUNT] <= CLEARED_AT_ONCE_BLOCKS:
            release_some(self.holders, held, bit, CLEARED_AT_ONCE_BLOCKS)
            self._free_bits.append(bit)
        else:
            self._leaving.append((held, bit))

    def _take_bit(self, slot: int) -> None:
        if not self._free_bits:  # more large clears in a row than spare bits: finish the oldest first
            held, bit = self._leaving.popleft()
            release_some(self.holders, held, bit, int(held.state[COUNT]))
            self._free_bits.append(bit)
        bit = self._free_bits.pop()
        self._bits[slot] = bit
        self._living[bit // WORD_BITS] |= np.uint64(1 << bit % WORD_BITS)

    def _widen(self) -> None:
        words = len(self._living)
        self._free_bits.extend(range(words * WORD_BITS, (words + 1) * WORD_BITS))
        self._living = np.append(self._living, np.uint64(0))
        self._move_to(len(self.holders.rows))

    def _shrink(self) -> None:
        rows, used = len(self.holders.rows), self.distinct_blocks()
        if used == 0 and (rows > MIN_ROWS or is_moving(self.holders)):
            self.holders = new_holders(words=len(self._living))
        elif rows > MIN_ROWS and 32 * used < rows:
            self._move_to(max(MIN_ROWS, rows // 8))

    def _move_to(self, rows: int) -> None:
        """Begin a move. A move under way is finished first; ``ROWS_PER_BLOCK`` makes that rare."""
        words = len(self._living)
        if self.distinct_blocks() == 0:
            self.holders = new_holders(rows, words)
            return
        if is_moving(self.holders):
            move_rows(self.holders, len(self.holders.old))
            self.holders = moved(self.holders)
        self.holders = begin_move(self.holders, rows, words)
