"""Policies whose order of blocks changes only when a block is touched: a heap of the evictable blocks by one key.

A policy gives ``key(cache, state, node)``, read when the block becomes evictable; ties leave least recently used first.
Its state is a NamedTuple with the field `order`; memory 32 bytes per known node and what the key needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import (
    Cache,
    EvictionHooks,
    Hook,
    ReferenceEviction,
    Setting,
    View,
    freed_parent,
    is_evictable,
    no_op,
    worth_nothing,
)
from semantic_kv.policy.structure.heap import Heap, drop, make_heap, put, smallest
from semantic_kv.policy.structure.template import filled
from sembase.compiled import kernel_part


class Order(NamedTuple):
    heap: Heap
    turn: NDArray[np.int64]  # one element: releases so far
    released: NDArray[np.int64]  # the turn of each node's last release


def make_order(node_count: int) -> Order:
    return Order(make_heap(node_count), np.zeros(1, np.int64), np.zeros(node_count, np.int64))


own_hit = own_evict = no_op
own_key = worth_nothing


def _hit(cache: Cache, state: Any, node: int) -> None:
    own_hit(cache, state, node)
    drop(state.order.heap, node)  # pinned now


def _release(cache: Cache, state: Any, node: int) -> None:
    order = state.order
    order.turn[0] += 1
    order.released[node] = order.turn[0]
    if is_evictable(cache, node):
        put(order.heap, node, own_key(cache, state, node), order.released[node])


def _evict(cache: Cache, state: Any, node: int) -> None:
    own_evict(cache, state, node)
    drop(state.order.heap, node)
    parent = freed_parent(cache, node)
    if parent >= 0 and cache.pinned[parent] == 0:
        put(state.order.heap, parent, own_key(cache, state, parent), state.order.released[parent])


@kernel_part
def _victim(cache: Cache, state: Any, incoming: int) -> int:
    return smallest(state.order.heap)


def ranked_hooks(
    make_state: Callable[[Setting], Any],
    key: Callable[[Cache, Any, int], float],
    *,
    on_hit: Hook = no_op,
    on_miss: Hook = no_op,
    on_admit: Hook = no_op,
    on_evict: Hook = no_op,
    worth: Callable[[Cache, Any, int], float] = worth_nothing,
) -> EvictionHooks:
    """Hooks that keep the heap; the policy's own run first. The state holds its `Order` as field `order`."""
    return EvictionHooks(
        make_state,
        _victim,
        on_hit=filled(_hit, own_hit=on_hit),
        on_miss=on_miss,
        on_admit=on_admit,
        on_release=filled(_release, own_key=key),
        on_evict=filled(_evict, own_evict=on_evict, own_key=key),
        worth=worth,
    )


class RankedReference(ReferenceEviction):
    """Brute force over the same definition; `key` is all that must be written (and `super()` called in hooks)."""

    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._turn = 0
        self._released: dict[int, int] = {}

    def key(self, node: int) -> float:
        raise NotImplementedError

    def on_release(self, node: int) -> None:
        self._turn += 1
        self._released[node] = self._turn

    def victim(self, incoming: int) -> int:
        return min(self.view.evictable(), key=lambda node: (self.key(node), self._released[node]), default=-1)
