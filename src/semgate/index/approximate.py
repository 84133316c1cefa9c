"""The index for engines that publish nothing: routed blocks, assumed held for a while, least recent dropped first.

Same tables as ``blocks``, with our own key instead of the engine's hash; 4 bytes more per block, for the age.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ConfigurationError
from semgate.index.held import DROPPED, forget_older, keep
from semgate.index.slots import SlotTable

TICK_SECONDS: Final = 0.1
EXPIRED_PER_CALL_BLOCKS: Final = 2048  # half a millisecond


class ApproximateIndex:
    """A block is assumed gone ``ttl_seconds`` after it was last routed, or earlier when the replica is full."""

    def __init__(
        self, max_blocks_per_replica: int, ttl_seconds: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if ttl_seconds <= 0:
            raise ConfigurationError(f"ttl_seconds is {ttl_seconds}; it must be greater than 0")
        self.expired_blocks = 0
        self.evicted_blocks = 0
        self._table = SlotTable(max_blocks_per_replica, stamped=True)
        self._ttl_ticks = max(1, round(ttl_seconds / TICK_SECONDS))
        self._clock = clock
        self._began = clock()
        self._tick = 0
        self._has_backlog = False
        self._counts = np.zeros(3, np.int64)

    def add_slot(self) -> int:
        return self._table.add()

    def remove_slot(self, slot: int) -> None:
        self._table.remove(slot)

    def cleared(self, slot: int) -> None:
        self._table.clear(slot)

    def routed(self, slot: int, keys: NDArray[np.uint64]) -> None:
        """A request with these keys goes to this replica. Leading blocks become newest: leaves are dropped first."""
        self._expire()
        held = self._table.make_room(slot, len(keys))
        backwards = np.ascontiguousarray(keys[::-1])
        scratch = np.empty((2, len(keys)), np.uint64)
        keep(
            *(
                self._table.holders,
                held,
                self._table.bit(slot),
                backwards,
                backwards,
                self._table.max_blocks_per_replica,
            ),
            *(self._tick, scratch[0], scratch[1], self._counts),
        )
        self.evicted_blocks += int(self._counts[DROPPED])

    def longest(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        self._expire()
        return self._table.longest(keys)

    def blocks(self, slot: int) -> int:
        self._expire()
        return self._table.blocks(slot)

    def distinct_blocks(self) -> int:
        return self._table.distinct_blocks()

    def tidy(self, blocks: int) -> bool:
        """Expire blocks and advance the table's pending work by that many blocks. Returns whether any is left."""
        self._expire()
        return self._table.tidy(blocks) or self._has_backlog

    def state_bytes(self) -> int:
        return self._table.state_bytes()

    def _expire(self) -> None:
        """Once per tick, or more often while more blocks expire than one call may drop; the rest stays a bit longer."""
        tick = int((self._clock() - self._began) / TICK_SECONDS)
        if tick == self._tick and not self._has_backlog:
            return
        self._tick = tick
        left = EXPIRED_PER_CALL_BLOCKS
        for slot in self._table.slots():
            held, bit = self._table.held(slot), self._table.bit(slot)
            left -= forget_older(self._table.holders, held, bit, tick - self._ttl_ticks, left)
        self.expired_blocks += EXPIRED_PER_CALL_BLOCKS - left
        self._has_backlog = left == 0
