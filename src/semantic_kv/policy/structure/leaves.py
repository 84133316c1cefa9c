"""The evictable blocks, unordered, for policies that compare all or some of them: O(1), 8 bytes per known node."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import Cache, freed_parent, is_evictable
from sembase.compiled import kernel_part

_MASK = 0xFFFFFFFF


class Leaves(NamedTuple):
    total: NDArray[np.int64]  # one element: how many
    random: NDArray[np.int64]  # one element: the state of the draws
    slots: NDArray[np.int32]
    position: NDArray[np.int32]  # of each node; -1: not evictable


def make_leaves(node_count: int, seed: int) -> Leaves:
    return Leaves(
        np.zeros(1, np.int64),
        np.full(1, (seed * 2654435761 + 88172645) & _MASK | 1, np.int64),
        np.empty(node_count, np.int32),
        np.full(node_count, -1, np.int32),
    )


@kernel_part
def add_leaf(leaves: Leaves, node: int) -> None:
    if leaves.position[node] >= 0:
        return
    leaves.position[node] = leaves.total[0]
    leaves.slots[leaves.total[0]] = node
    leaves.total[0] += 1


@kernel_part
def drop_leaf(leaves: Leaves, node: int) -> None:
    """Take a node out; the last one takes its place."""
    slot = leaves.position[node]
    if slot < 0:
        return
    leaves.total[0] -= 1
    moved = leaves.slots[leaves.total[0]]
    leaves.slots[slot] = moved
    leaves.position[moved] = slot
    leaves.position[node] = -1


@kernel_part
def leaf_released(cache: Cache, leaves: Leaves, node: int) -> None:
    if is_evictable(cache, node):
        add_leaf(leaves, node)


@kernel_part
def leaf_evicted(cache: Cache, leaves: Leaves, node: int) -> None:
    drop_leaf(leaves, node)
    parent = freed_parent(cache, node)
    if parent >= 0 and cache.pinned[parent] == 0:
        add_leaf(leaves, parent)


@kernel_part
def draw(leaves: Leaves) -> int:
    """A pseudo-random leaf (xorshift, 32 bits); -1 where there is none."""
    if leaves.total[0] == 0:
        return -1
    state = int(leaves.random[0])
    state ^= (state << 13) & 0xFFFFFFFF
    state ^= state >> 17
    state ^= (state << 5) & 0xFFFFFFFF
    leaves.random[0] = state
    return int(leaves.slots[state % leaves.total[0]])
