"""Evict by (uses so far, also while not resident; last request; deeper first)."""

from __future__ import annotations

from collections import Counter
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
    """Brute force over the definition; the order of releases stands for (last request, deeper first)."""

    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._uses = Counter[int]()
        self._released: dict[int, int] = {}
        self._clock = 0

    def on_hit(self, node: int) -> None:
        self._uses[node] += 1

    def on_miss(self, node: int) -> None:
        self._uses[node] += 1

    def on_release(self, node: int) -> None:
        self._clock += 1
        self._released[node] = self._clock

    def victim(self, incoming: int) -> int:
        return min(self.view.evictable(), key=lambda node: (self._uses[node], self._released[node]), default=-1)


class State(NamedTuple):
    """36 bytes per known node."""

    leaves: Heap
    uses: NDArray[np.int32]
    released: NDArray[np.int64]
    clock: NDArray[np.int64]


def make_state(setting: Setting) -> State:
    nodes = setting.node_count
    return State(make_heap(nodes), np.zeros(nodes, np.int32), np.zeros(nodes, np.int64), np.zeros(1, np.int64))


@kernel_part
def on_hit(cache: Cache, state: State, node: int) -> None:
    state.uses[node] += 1
    drop(state.leaves, node)  # pinned blocks are not in the heap


@kernel_part
def on_miss(cache: Cache, state: State, node: int) -> None:
    state.uses[node] += 1


@kernel_part
def on_release(cache: Cache, state: State, node: int) -> None:
    state.released[node] = state.clock[0]
    state.clock[0] += 1
    if cache.children[node] == 0:
        put(state.leaves, node, float(state.uses[node]), int(state.released[node]))


@kernel_part
def on_evict(cache: Cache, state: State, node: int) -> None:
    drop(state.leaves, node)
    parent = freed_parent(cache, node)
    if parent >= 0 and cache.pinned[parent] == 0:
        put(state.leaves, parent, float(state.uses[parent]), int(state.released[parent]))


@kernel_part
def victim(cache: Cache, state: State, incoming: int) -> int:
    return smallest(state.leaves)


POLICY = EvictionPolicy(
    "lfu",
    Reference,
    EvictionHooks(make_state, victim, on_hit=on_hit, on_miss=on_miss, on_release=on_release, on_evict=on_evict),
)
