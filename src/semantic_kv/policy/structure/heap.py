"""An indexed binary heap of nodes by (major, minor), smallest first: O(log n), 24 bytes per known node.

In a prefix tree only leaves need to be in it, so its size is the number of resident leaves, not of blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel_part


class Heap(NamedTuple):
    size: NDArray[np.int64]  # one element
    slots: NDArray[np.int32]
    position: NDArray[np.int32]  # of each node; -1: not in the heap
    major: NDArray[np.float64]
    minor: NDArray[np.int64]


def make_heap(node_count: int) -> Heap:
    return Heap(
        np.zeros(1, np.int64),
        np.empty(node_count, np.int32),
        np.full(node_count, -1, np.int32),
        np.empty(node_count, np.float64),
        np.empty(node_count, np.int64),
    )


@kernel_part
def _before(heap: Heap, left: int, right: int) -> bool:
    if heap.major[left] != heap.major[right]:
        return bool(heap.major[left] < heap.major[right])
    return bool(heap.minor[left] < heap.minor[right])


@kernel_part
def _rise(heap: Heap, slot: int) -> int:
    node = heap.slots[slot]
    while slot > 0:
        above = (slot - 1) // 2
        if not _before(heap, node, heap.slots[above]):
            break
        heap.slots[slot] = heap.slots[above]
        heap.position[heap.slots[slot]] = slot
        slot = above
    heap.slots[slot] = node
    heap.position[node] = slot
    return slot


@kernel_part
def _sink(heap: Heap, slot: int) -> None:
    node = heap.slots[slot]
    size = heap.size[0]
    while True:
        below = 2 * slot + 1
        if below >= size:
            break
        if below + 1 < size and _before(heap, heap.slots[below + 1], heap.slots[below]):
            below += 1
        if not _before(heap, heap.slots[below], node):
            break
        heap.slots[slot] = heap.slots[below]
        heap.position[heap.slots[slot]] = slot
        slot = below
    heap.slots[slot] = node
    heap.position[node] = slot


@kernel_part
def in_heap(heap: Heap, node: int) -> bool:
    return bool(heap.position[node] >= 0)


@kernel_part
def put(heap: Heap, node: int, major: float, minor: int) -> None:
    """Insert a node, or give one that is inside another key."""
    heap.major[node] = major
    heap.minor[node] = minor
    slot = int(heap.position[node])
    if slot < 0:
        slot = int(heap.size[0])
        heap.slots[slot] = node
        heap.position[node] = slot
        heap.size[0] += 1
    _sink(heap, _rise(heap, slot))


@kernel_part
def drop(heap: Heap, node: int) -> None:
    """Take a node out; nothing happens to one that is not inside."""
    slot = int(heap.position[node])
    if slot < 0:
        return
    heap.position[node] = -1
    heap.size[0] -= 1
    last = heap.slots[heap.size[0]]
    if last != node:
        heap.slots[slot] = last
        heap.position[last] = slot
        _sink(heap, _rise(heap, slot))


@kernel_part
def smallest(heap: Heap) -> int:
    return int(heap.slots[0]) if heap.size[0] > 0 else -1
