"""The shared half of both indexes: slots handed out, one table of holders, one bounded map per replica, growth."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.errors import ConfigurationError
from semgate.index.held import COUNT, Held, grown, held_bytes, new_held, release_all
from semgate.index.holders import WORD_BITS, leading_blocks, new_holders, resized, rows_for

SMALLEST_BOUND: Final = 16
LARGEST_BOUND: Final = 1 << 30


class SlotTable:
    """Replicas by slot. Growing copies: about 40 ms once at a million blocks, then not again before two million."""

    def __init__(self, max_blocks_per_replica: int, *, stamped: bool = False) -> None:
        if not SMALLEST_BOUND <= max_blocks_per_replica <= LARGEST_BOUND:
            raise ConfigurationError(
                f"max_blocks_per_replica is {max_blocks_per_replica}; give {SMALLEST_BOUND} to {LARGEST_BOUND}"
            )
        self.max_blocks_per_replica = max_blocks_per_replica
        self.holders = new_holders()
        self._stamped = stamped
        self._held: list[Held | None] = []
        self._living = np.zeros(1, np.uint64)

    def __len__(self) -> int:
        """Slots, including those free to be handed out again."""
        return len(self._held)

    def held(self, slot: int) -> Held:
        held = self._held[slot] if 0 <= slot < len(self._held) else None
        if held is None:
            raise KeyError(f"no replica has slot {slot}")
        return held

    def slots(self) -> list[int]:
        return [slot for slot, held in enumerate(self._held) if held is not None]

    def add(self) -> int:
        fresh = new_held(stamped=self._stamped)
        if None in self._held:
            slot = self._held.index(None)
            self._held[slot] = fresh
        else:
            slot = len(self._held)
            self._held.append(fresh)
        words = slot // WORD_BITS + 1
        if words > len(self._living):
            self.holders = resized(self.holders, len(self.holders.rows), words)
            self._living = np.concatenate([self._living, np.zeros(words - len(self._living), np.uint64)])
        self._living[slot // WORD_BITS] |= np.uint64(1 << slot % WORD_BITS)
        return slot

    def remove(self, slot: int) -> None:
        """Time in proportion to the blocks of this replica alone."""
        self.clear(slot)
        self._held[slot] = None
        self._living[slot // WORD_BITS] &= ~np.uint64(1 << slot % WORD_BITS)

    def clear(self, slot: int) -> None:
        release_all(self.holders, self.held(slot), slot)
        self._held[slot] = new_held(stamped=self._stamped)
        rows = rows_for(4 * int(self.holders.used[0]))
        if rows < len(self.holders.rows):
            self.holders = resized(self.holders, rows, len(self._living))

    def make_room(self, slot: int, blocks: int) -> Held:
        """The replica's map, with room for that many more blocks in it and among the holders."""
        held = self.held(slot)
        needed = min(int(held.state[COUNT]) + blocks, self.max_blocks_per_replica)
        if needed > len(held.hashes):
            doubled = min(max(2 * len(held.hashes), needed), self.max_blocks_per_replica)
            held = grown(held, doubled)
            self._held[slot] = held
        rows = rows_for(int(self.holders.used[0]) + blocks)
        if rows > len(self.holders.rows):
            self.holders = resized(self.holders, rows, len(self._living))
        return held

    def blocks(self, slot: int) -> int:
        return int(self.held(slot).state[COUNT])

    def longest(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Leading blocks held, per slot; a free slot holds none."""
        result = np.zeros(len(self._held), np.int32)
        leading_blocks(self.holders, keys, self._living.copy(), result)
        return result

    def distinct_blocks(self) -> int:
        return int(self.holders.used[0])

    def state_bytes(self) -> int:
        """Bytes of all tables, spare room included."""
        return self.holders.rows.nbytes + sum(held_bytes(held) for held in self._held if held is not None)
