"""A simulated fleet: 64 prefix caches of equal size, leaf-first LRU or farthest next use, and one prefill queue each.

A model, not an engine: a prompt's blocks are in the cache from the moment it is placed, prefill is first in, first out,
decoding delays no request. Memory: 16 bytes per cached block and 16 per distinct block of the load.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel, kernel_part

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Masks = NDArray[np.uint64]
REPLICAS: Final = 64
_SAMPLE: Final = 16
_ONE: Final = np.uint64(1)
_NONE: Final = np.uint64(0)


class Caches(NamedTuple):
    """Node ``r * capacity + i`` is a place in replica ``r``; ``same`` chains the nodes of one block over the replicas.
    ``ends[r]``: most recent, least recent and used places of a replica; ``due[b]``: the next request with block b."""

    holders: Masks
    first: Ints
    block: Ints
    newer: Ints
    older: Ints
    same: Ints
    due: Ints
    ends: Ints
    capacity: Longs


def new_caches(distinct_blocks: int, capacity: int) -> Caches:
    nodes = REPLICAS * capacity
    ends = np.full((REPLICAS, 3), -1, dtype=np.int32)
    ends[:, 2] = 0
    return Caches(
        holders=np.zeros(distinct_blocks, dtype=np.uint64),
        first=np.full(distinct_blocks, -1, dtype=np.int32),
        block=np.full(nodes, -1, dtype=np.int32),
        newer=np.full(nodes, -1, dtype=np.int32),
        older=np.full(nodes, -1, dtype=np.int32),
        same=np.full(nodes, -1, dtype=np.int32),
        due=np.zeros(distinct_blocks, dtype=np.int32),
        ends=ends,
        capacity=np.array([capacity], dtype=np.int64),
    )


@kernel
def longest(caches: Caches, blocks: Ints, found: Ints) -> None:
    """Leading blocks held, per replica."""
    alive = ~_NONE
    found[:] = 0
    for depth in range(blocks.size):
        lost = alive & ~caches.holders[blocks[depth]]
        alive &= ~lost
        for replica in range(REPLICAS):
            if (lost >> np.uint64(replica)) & _ONE:
                found[replica] = depth
        if alive == _NONE:
            return
    for replica in range(REPLICAS):
        if (alive >> np.uint64(replica)) & _ONE:
            found[replica] = blocks.size


@kernel
def store(caches: Caches, replica: int, blocks: Ints, next_use: Ints, knows_future: bool) -> None:
    """The prompt is computed there. Touched from its end, so that a child is always evicted before its parent."""
    bit = _ONE << np.uint64(replica)
    for depth in range(min(blocks.size, caches.capacity[0]) - 1, -1, -1):
        block = blocks[depth]
        if caches.holders[block] & bit:
            node = _node_of(caches, replica, block)
            _unlink(caches, replica, node)
        else:
            node = _free_node(caches, replica, knows_future)
            caches.block[node] = block
            caches.same[node] = caches.first[block]
            caches.first[block] = node
            caches.holders[block] |= bit
        caches.due[block] = next_use[depth]
        _link_newest(caches, replica, node)


@kernel
def store_then_look(
    caches: Caches, replica: int, before: Ints, before_next_use: Ints, blocks: Ints, found: Ints
) -> None:
    """Both in one call: unpacking the caches costs more than either."""
    store(caches, replica, before, before_next_use, False)
    longest(caches, blocks, found)


@kernel_part
def _node_of(caches: Caches, replica: int, block: int) -> int:
    node = caches.first[block]
    while node // caches.capacity[0] != replica:
        node = caches.same[node]
    return int(node)


@kernel_part
def _free_node(caches: Caches, replica: int, knows_future: bool) -> int:
    capacity = caches.capacity[0]
    if caches.ends[replica, 2] < capacity:
        caches.ends[replica, 2] += 1
        return int(replica * capacity + caches.ends[replica, 2] - 1)
    node = caches.ends[replica, 1]
    if knows_future:  # of a few places at random the one whose block is needed last
        for _ in range(_SAMPLE):
            other = replica * capacity + np.random.randint(0, capacity)
            if caches.due[caches.block[other]] > caches.due[caches.block[node]]:
                node = other
    _unlink(caches, replica, node)
    block = caches.block[node]
    caches.holders[block] &= ~(_ONE << np.uint64(replica))
    before = caches.first[block]
    if before == node:
        caches.first[block] = caches.same[node]
    else:
        while caches.same[before] != node:
            before = caches.same[before]
        caches.same[before] = caches.same[node]
    return int(node)


@kernel_part
def _unlink(caches: Caches, replica: int, node: int) -> None:
    newer, older = caches.newer[node], caches.older[node]
    if newer >= 0:
        caches.older[newer] = older
    else:
        caches.ends[replica, 0] = older
    if older >= 0:
        caches.newer[older] = newer
    else:
        caches.ends[replica, 1] = newer


@kernel_part
def _link_newest(caches: Caches, replica: int, node: int) -> None:
    newest = caches.ends[replica, 0]
    caches.newer[node], caches.older[node] = -1, newest
    if newest >= 0:
        caches.newer[newest] = node
    else:
        caches.ends[replica, 1] = node
    caches.ends[replica, 0] = node


@kernel
def clairvoyant(
    caches: Caches,
    arrival_ms: Floats,
    prompt_tokens: Longs,
    starts: Longs,
    blocks: Ints,
    next_use: Ints,
    block_tokens: int,
    ms_per_token: float,
    knows_future: bool,
) -> tuple[Floats, Longs]:
    """Greedy with perfect sight: true cache contents, exact end of every queue; with ``knows_future`` each cache also
    gives up the block needed last. TTFT without base, and tokens found, per request. Not a bound: it is greedy."""
    count = arrival_ms.size
    ttft, cached = np.zeros(count), np.zeros(count, dtype=np.int64)
    free_at, held = np.zeros(REPLICAS), np.zeros(REPLICAS, dtype=np.int32)
    for request in range(count):
        mine = blocks[starts[request] : starts[request + 1]]
        longest(caches, mine, held)
        best, best_ms, best_found, turn = 0, 1e300, 0, request % REPLICAS
        for step in range(REPLICAS):
            replica = (turn + step) % REPLICAS
            found = min(held[replica] * block_tokens, prompt_tokens[request] - 1)
            work = (prompt_tokens[request] - found) * ms_per_token
            took = max(free_at[replica] - arrival_ms[request], 0.0) + work
            if took < best_ms - 1e-9:
                best, best_ms, best_found = replica, took, found
        free_at[best] = arrival_ms[request] + best_ms
        ttft[request], cached[request] = best_ms, best_found
        store(caches, best, mine, next_use[starts[request] : starts[request + 1]], knows_future)
    return ttft, cached


@kernel
def unlimited(prompt_tokens: Longs, starts: Longs, blocks: Ints, distinct: int, block_tokens: int) -> Longs:
    """Tokens each request would find if every block ever computed anywhere were everywhere: a bound for any policy."""
    seen = np.zeros(distinct, dtype=np.bool_)
    cached = np.zeros(prompt_tokens.size, dtype=np.int64)
    for request in range(prompt_tokens.size):
        depth = 0
        for place in range(starts[request], starts[request + 1]):
            if not seen[blocks[place]]:
                break
            depth += 1
        cached[request] = min(depth * block_tokens, prompt_tokens[request] - 1)
        for place in range(starts[request], starts[request + 1]):
            seen[blocks[place]] = True
    return cached
