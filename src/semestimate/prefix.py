"""What an exact prefix cache serves of traces that contain block ids only: blocks that an earlier prompt began with.

The cache never forgets; ``curve`` says how much memory that takes. Memory is bounded: above ``MAX_BLOCKS`` distinct
blocks only every second one is kept, and so on (chosen by their hash, as SHARDS does), and a hit is then known to
within a few blocks. Prompts with content digests are counted by ``sembase.trace.reuse_counter`` instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part
from semestimate.request import Request

BLOCK_TOKENS: Final = 16
MAX_BLOCKS: Final = 1 << 23
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SPREAD: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)
_ONE: Final = np.uint64(1)


@dataclass(frozen=True, slots=True)
class PrefixBlocks:
    """``keys[i]`` identifies block ``i`` and everything before it; ``sizes[i]`` is its tokens."""

    keys: NDArray[np.uint64]
    sizes: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """``owner`` is the number of the request that first had the last block of the hit; -1 without a hit."""

    tokens: int
    owner: int


def prefix_blocks(request: Request, tenant: int) -> PrefixBlocks:
    """Of content digests, 16 tokens at a time, as engines cut them; otherwise the blocks of the record."""
    seed = np.uint64(tenant + 1)
    if request.digests is None:
        return PrefixBlocks(_chain(request.keys, seed), request.tokens)
    steps = request.digests.words().view(np.uint32)[: request.digests.token_count // BLOCK_TOKENS]
    return PrefixBlocks(_chain(steps.astype(np.uint64), seed), np.full(len(steps), BLOCK_TOKENS, np.int32))


class PrefixCache:
    """Answers and remembers one request after another."""

    def __init__(self, max_blocks: int = MAX_BLOCKS) -> None:
        self.max_blocks = max_blocks
        self._keys = np.zeros(1 << 12, np.uint64)
        self._owners = np.zeros(1 << 12, np.int32)
        self._block_tokens, self._hit_tokens = 0, 0
        self.count = 0
        self.shift = 0  # one block in 2**shift is kept

    def add(self, blocks: PrefixBlocks, number: int) -> PrefixHit:
        known, unknown, owner = _find(self._keys, self._owners, blocks.keys, self.shift)
        self._count(blocks.keys, blocks.sizes, known)
        self._make_room(len(blocks.keys) - unknown)
        self.count += _insert(self._keys, self._owners, blocks.keys, unknown, number, self.shift)
        if known == 0 and unknown == len(blocks.keys) and self.shift:  # no block of this prompt is sampled
            return PrefixHit(round(self.hit_share * int(blocks.sizes.sum())), -1)
        hit = (known + unknown) // 2  # somewhere between them, where some blocks are not sampled
        return PrefixHit(int(blocks.sizes[:hit].sum()), int(owner))

    @property
    def hit_share(self) -> float:
        """Fraction of the tokens in whole blocks that were known; from the sampled blocks alone."""
        return self._hit_tokens / self._block_tokens if self._block_tokens else 0.0

    def _count(self, keys: NDArray[np.uint64], sizes: NDArray[np.int32], known: int) -> None:
        sampled = (keys & np.uint64((1 << self.shift) - 1)) == 0
        self._block_tokens += int(sizes[sampled].sum()) << self.shift
        self._hit_tokens += int(sizes[:known][sampled[:known]].sum()) << self.shift

    def _make_room(self, more: int) -> None:
        while self.count + (more >> self.shift) > self.max_blocks:
            self.shift += 1
            self._rebuild(len(self._keys))
        if 2 * (self.count + more) > len(self._keys) and len(self._keys) < 4 * self.max_blocks:
            self._rebuild(1 << int(4 * (self.count + more)).bit_length())

    def _rebuild(self, slots: int) -> None:
        kept = self._keys != 0
        keys, owners = self._keys[kept], self._owners[kept]
        sampled = (keys & np.uint64((1 << self.shift) - 1)) == 0
        self._keys, self._owners = np.zeros(slots, np.uint64), np.zeros(slots, np.int32)
        self.count = _refill(self._keys, self._owners, keys[sampled], owners[sampled])


@kernel_part
def _mixed(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> _HALF)) * _SPREAD
    return value ^ (value >> _HALF)


@kernel
def _chain(contents: NDArray[np.uint64], seed: np.uint64) -> NDArray[np.uint64]:
    keys = np.empty(len(contents), np.uint64)
    chain = _mixed(seed * _MIX)
    for block in range(len(contents)):
        chain = _mixed((chain ^ contents[block]) * _MIX)
        keys[block] = chain if chain != np.uint64(0) else _ONE
    return keys


@kernel_part
def _slot_of(table: NDArray[np.uint64], key: np.uint64) -> int:
    """The slot that holds the key, or the free one where it belongs. Low bits choose samples, high ones slots."""
    mask = np.uint64(len(table) - 1)
    slot = (key >> np.uint64(20)) & mask
    while table[slot] != np.uint64(0) and table[slot] != key:
        slot = (slot + _ONE) & mask
    return int(slot)


@kernel
def _find(
    table: NDArray[np.uint64], owners: NDArray[np.int32], keys: NDArray[np.uint64], shift: int
) -> tuple[int, int, int]:
    """How many blocks are known for certain, the first that is certainly unknown, and the owner of the last known one.

    If a block is known, so are all before it: binary search among the sampled ones.
    """
    rest = np.uint64((1 << shift) - 1)
    sampled = np.empty(len(keys), np.int64)
    count = 0
    for at in range(len(keys)):
        if keys[at] & rest == np.uint64(0):
            sampled[count] = at
            count += 1
    low = 0
    high = count
    while low < high:
        middle = (low + high) // 2
        if table[_slot_of(table, keys[sampled[middle]])] != np.uint64(0):
            low = middle + 1
        else:
            high = middle
    known = int(sampled[low - 1]) + 1 if low > 0 else 0
    owner = int(owners[_slot_of(table, keys[known - 1])]) if known > 0 else -1
    return known, int(sampled[low]) if low < count else len(keys), owner


@kernel
def _insert(
    table: NDArray[np.uint64], owners: NDArray[np.int32], keys: NDArray[np.uint64], start: int, owner: int, shift: int
) -> int:
    rest = np.uint64((1 << shift) - 1)
    added = 0
    for at in range(start, len(keys)):
        if keys[at] & rest == np.uint64(0):
            slot = _slot_of(table, keys[at])
            if table[slot] == np.uint64(0):
                table[slot] = keys[at]
                owners[slot] = owner
                added += 1
    return added


@kernel
def _refill(
    table: NDArray[np.uint64], owners: NDArray[np.int32], keys: NDArray[np.uint64], of: NDArray[np.int32]
) -> int:
    for at in range(len(keys)):
        slot = _slot_of(table, keys[at])
        table[slot] = keys[at]
        owners[slot] = of[at]
    return len(keys)
