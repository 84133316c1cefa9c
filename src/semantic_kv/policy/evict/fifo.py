"""Evict by (request that admitted the block, deeper first). A heap of leaves: inner blocks keep their place in time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import (
    Cache,
    EvictionHooks,
    EvictionPolicy,
    ReferenceEviction,
    Setting,
    View,
    freed_parent,
)
from semantic_kv.policy.structure.heap import Heap, drop, make_heap, put, smallest
from sembase.compiled import kernel_part


class Reference(ReferenceEviction):
    """Brute force over the definition: a block's place is the order of its first release."""

    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._entered: dict[int, int] = {}
        self._clock = 0

    def on_release(self, node: int) -> None:
        self._clock += 1
        self._entered.setdefault(node, self._clock)

    def on_evict(self, node: int) -> None:
        del self._entered[node]

    def victim(self, incoming: int) -> int:
        return min(self.view.evictable(), key=self._entered.__getitem__, default=-1)


class State(NamedTuple):
    """32 bytes per known node."""

    leaves: Heap
    entered: NDArray[np.int64]  # -1: not since it was admitted
    clock: NDArray[np.int64]


def make_state(setting: Setting) -> State:
    return State(make_heap(setting.node_count), np.full(setting.node_count, -1, np.int64), np.zeros(1, np.int64))


@kernel_part
def on_hit(cache: Cache, state: State, node: int) -> None:
    drop(state.leaves, node)  # pinned blocks are not in the heap


@kernel_part
def on_release(cache: Cache, state: State, node: int) -> None:
    if state.entered[node] < 0:
        state.entered[node] = state.clock[0]
        state.clock[0] += 1
    if cache.children[node] == 0:
        put(state.leaves, node, 0.0, int(state.entered[node]))


@kernel_part
def on_evict(cache: Cache, state: State, node: int) -> None:
    drop(state.leaves, node)
    state.entered[node] = -1
    parent = freed_parent(cache, node)
    if parent >= 0 and cache.pinned[parent] == 0:
        put(state.leaves, parent, 0.0, int(state.entered[parent]))


@kernel_part
def victim(cache: Cache, state: State, incoming: int) -> int:
    return smallest(state.leaves)


POLICY = EvictionPolicy(
    "fifo", Reference, EvictionHooks(make_state, victim, on_hit=on_hit, on_release=on_release, on_evict=on_evict)
)
