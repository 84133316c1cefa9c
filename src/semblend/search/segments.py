"""Room for the hash table's segments: where each lives, and how one of them grows without stopping the others.

A crowded segment moves to a new extent; the old one and its memory are released once no reader can be in it. A
segment holds at most some hundred thousand keys, so a registration waits for milliseconds, however many donors there
are. A segment counts as crowded while it still has far more free places than the 21 keys that one posting can add.
"""

from __future__ import annotations

import mmap
from typing import Final

import numpy as np

from semblend.search.epochs import Epochs
from semblend.search.layout import (
    MIN_SEGMENT,
    SEGMENT_EXTENT,
    SEGMENT_GONE,
    SEGMENT_USED,
    STATE_CROWDED,
    STATE_TABLE_PLACES,
    Store,
    allocate,
    reserve_bytes,
    table_bytes,
)
from semblend.search.table import move_segment

_GROWTH: Final = 1.5


class SegmentSpace:
    """Owns the table's address space; the writer's lock guards every call."""

    def __init__(self, budget_bytes: int, epochs: Epochs) -> None:
        self._mapping = reserve_bytes(table_bytes(budget_bytes))
        self._epochs = epochs
        self._free: dict[int, list[int]] = {}
        self._next = 0
        self.store: Store = allocate(budget_bytes, np.frombuffer(self._mapping, np.int64))
        for segment in range(len(self.store.segments)):
            self.store.segments[segment, SEGMENT_EXTENT] = self._take(MIN_SEGMENT) << 32 | MIN_SEGMENT

    def relieve(self) -> None:
        """Move the crowded segment to a larger extent; to one of equal size if dropping its dead keys is enough."""
        store = self.store
        segment = int(store.state[STATE_CROWDED]) - 1
        store.state[STATE_CROWDED] = 0
        extent = int(store.segments[segment, SEGMENT_EXTENT])
        old_begin, size = extent >> 32, extent & 0xFFFFFFFF
        living = int(store.segments[segment, SEGMENT_USED] - store.segments[segment, SEGMENT_GONE])
        wanted = size if living * 2 < size else -(-int(size * _GROWTH) // MIN_SEGMENT) * MIN_SEGMENT
        begin = self._take(wanted)
        move_segment(store, segment, begin, begin + wanted)
        self._epochs.retire(lambda: self._give_back(old_begin, size))

    def _take(self, size: int) -> int:
        self.store.state[STATE_TABLE_PLACES] += size
        free = self._free.get(size)
        if free:
            return free.pop()
        begin = self._next
        self._next += size
        if self._next * 8 > len(self._mapping):
            raise MemoryError("the address space of the hash table is exhausted")
        return begin

    def _give_back(self, begin: int, size: int) -> None:
        """Zero the extent and return its memory to the system."""
        self._mapping.madvise(mmap.MADV_DONTNEED, begin * 8, size * 8)
        self._free.setdefault(size, []).append(begin)
        self.store.state[STATE_TABLE_PLACES] -= size
