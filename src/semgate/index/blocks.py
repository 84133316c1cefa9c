"""The exact index: blocks the engines reported stored and removed in, leading blocks held by each replica out.

Filled by ``events.feed``, queried by the placement, all in one thread. ``benchmarks/router/index`` prints bytes per
block and operations per second.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ContractError
from semgate.index.held import (
    DROPPED,
    STORED,
    TWINS,
    Held,
    entries,
    entries_of,
    forget,
    frozen,
    hold_again,
    keep,
    key_of,
    set_copies,
)
from semgate.index.keys import request_keys
from semgate.index.slots import SlotTable

# Sixteen million tokens in blocks of 16: more than the memory of one replica holds. Above it, the oldest are dropped.
DEFAULT_BLOCKS_PER_REPLICA: Final = 1 << 20
_SMALLEST_SCRATCH: Final = 256


@dataclass(slots=True)
class IndexCounters:
    """``orphan_blocks``: stored after a parent that was never announced, so that they cannot be placed in a chain."""

    stored_blocks: int = 0
    removed_blocks: int = 0
    orphan_blocks: int = 0
    evicted_blocks: int = 0
    clears: int = 0


class BlockIndex:
    """``count_copies``: vLLM reports every copy of a block it stores and drops; a block is gone with its last copy."""

    def __init__(self, max_blocks_per_replica: int = DEFAULT_BLOCKS_PER_REPLICA, *, count_copies: bool = True) -> None:
        self.counters = IndexCounters()
        self._table = SlotTable(max_blocks_per_replica)
        self._count_copies = count_copies
        self._twins: dict[int, dict[int, int]] = {}  # slot -> key -> engine hashes it is held under besides the first
        self._counts = np.zeros(3, np.int64)
        self._dropped = np.empty(_SMALLEST_SCRATCH, np.uint64)
        self._new_twins = np.empty(_SMALLEST_SCRATCH, np.uint64)

    def add_slot(self) -> int:
        return self._table.add()

    def remove_slot(self, slot: int) -> None:
        self._twins.pop(slot, None)
        self._table.remove(slot)

    def cleared(self, slot: int) -> None:
        self._twins.pop(slot, None)
        self._table.clear(slot)
        self.counters.clears += 1

    def stored(
        self,
        slot: int,
        engine_hashes: NDArray[np.uint64],
        parent_hash: int | None,
        tokens: NDArray[np.uint32],
        block_tokens: int,
        root: int,
        extras: NDArray[np.uint64] | None = None,
    ) -> int:
        """Blocks that were new here. ``root`` is the key that a chain without parent starts from."""
        count = len(engine_hashes)
        if block_tokens < 1 or len(tokens) != count * block_tokens:
            raise ContractError(f"{count} blocks of {block_tokens} tokens came with {len(tokens)} tokens")
        if extras is not None and len(extras) != count:
            raise ContractError(f"{count} blocks came with {len(extras)} extra keys")
        held = self._table.held(slot)
        origin = root if parent_hash is None else int(key_of(held, np.uint64(parent_hash)))
        if origin == 0 and parent_hash is not None:
            self.counters.orphan_blocks += count
            return 0
        return self._keep(slot, engine_hashes, request_keys(tokens, block_tokens, origin, extras))

    def restore(
        self,
        slot: int,
        engine_hashes: NDArray[np.uint64],
        keys: NDArray[np.uint64],
        copies: NDArray[np.uint16],
    ) -> None:
        """Blocks as ``frozen`` gave them, oldest first, into an empty slot; may be called with a part at a time."""
        self._keep(slot, engine_hashes, keys)
        several = copies > 1
        if several.any():
            set_copies(self._table.held(slot), engine_hashes[several], copies[several])

    def frozen(self, slot: int) -> Held:
        """A copy of what a replica holds, for ``held.entries``; 30 bytes per block."""
        return frozen(self._table.held(slot))

    def _keep(self, slot: int, engine_hashes: NDArray[np.uint64], keys: NDArray[np.uint64]) -> int:
        count = len(engine_hashes)
        self._make_scratch(count)
        held = self._table.make_room(slot, count)
        bound = self._table.max_blocks_per_replica
        keep(
            *(self._table.holders, held, self._table.bit(slot), engine_hashes, keys, bound, 0),
            *(self._dropped, self._new_twins, self._counts),
        )
        if self._counts[TWINS]:
            known = self._twins.setdefault(slot, {})
            for key in self._new_twins[: self._counts[TWINS]].tolist():
                known[key] = known.get(key, 0) + 1
        self.counters.evicted_blocks += int(self._counts[DROPPED])
        new_blocks = int(self._counts[STORED])
        self.counters.stored_blocks += new_blocks
        self._restore_twins(slot, recount=True)
        return new_blocks

    def removed(self, slot: int, engine_hashes: NDArray[np.uint64]) -> int:
        """Blocks that this removed; unknown hashes are ignored."""
        self._make_scratch(len(engine_hashes))
        held = self._table.held(slot)
        bit = self._table.bit(slot)
        forget(self._table.holders, held, bit, engine_hashes, self._count_copies, self._dropped, self._counts)
        gone = int(self._counts[DROPPED])
        self.counters.removed_blocks += gone
        self._restore_twins(slot, recount=False)
        return gone

    def longest(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        return self._table.longest(keys)

    def blocks(self, slot: int) -> int:
        return self._table.blocks(slot)

    def distinct_blocks(self) -> int:
        return self._table.distinct_blocks()

    def tidy(self, blocks: int) -> bool:
        """Release cleared replicas and move tables, by that many blocks. Returns whether any work is left."""
        return self._table.tidy(blocks)

    def state_bytes(self) -> int:
        return self._table.state_bytes()

    def dump(self, slot: int) -> set[tuple[int, int]]:
        """(engine hash, block key) of every block a replica holds, to compare with the engine's own list."""
        hashes, keys, _ = entries(self._table.held(slot))
        return set(zip(hashes.tolist(), keys.tolist(), strict=True))

    def _make_scratch(self, count: int) -> None:
        if count > len(self._dropped):
            self._dropped = np.empty(2 * count, np.uint64)
            self._new_twins = np.empty(2 * count, np.uint64)

    def _restore_twins(self, slot: int, *, recount: bool) -> None:
        """Two engine hashes of one key are rare (the engine tells blocks apart by what it does not publish): the key
        left with the first of them and comes back here while another is held. ``recount``: where blocks came and went
        in one call, which of them were twins shows in the entries only."""
        twins = self._twins.get(slot)
        if not twins or not self._counts[DROPPED]:
            return
        left = Counter(key for key in self._dropped[: self._counts[DROPPED]].tolist() if key in twins)
        for key, times in left.items():
            held = entries_of(self._table.held(slot), np.uint64(key)) if recount else 1 + twins[key] - times
            if held:
                hold_again(self._table.holders, np.uint64(key), self._table.bit(slot))
            if held > 1:
                twins[key] = held - 1
            else:
                del twins[key]
        if not twins:
            del self._twins[slot]
