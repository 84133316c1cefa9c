"""Policies whose order of blocks changes with time: the lowest score of the evictable blocks, or of a sample of them.

A policy gives ``score(cache, state, node)``; ties leave least recently used first. Its state is a NamedTuple with the
field `pool`. Memory 16 bytes per known node; an eviction costs as many scores as the sample holds (0: all of them).
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
    no_op,
    no_op_after,
    worth_nothing,
)
from semantic_kv.policy.structure.leaves import (
    Leaves,
    add_leaf,
    draw,
    drop_leaf,
    leaf_evicted,
    leaf_released,
    make_leaves,
)
from semantic_kv.policy.structure.template import filled
from sembase.compiled import kernel_part


class Pool(NamedTuple):
    leaves: Leaves
    sample: NDArray[np.int64]  # one element: leaves compared for one eviction, 0 for all
    turn: NDArray[np.int64]  # one element: releases so far
    released: NDArray[np.int64]  # the turn of each node's last release


def make_pool(setting: Setting, sample: int) -> Pool:
    return Pool(
        make_leaves(setting.node_count, setting.seed),
        np.full(1, sample, np.int64),
        np.zeros(1, np.int64),
        np.zeros(setting.node_count, np.int64),
    )


own_hit = own_evict = no_op
own_score = worth_nothing


def _hit(cache: Cache, state: Any, node: int) -> None:
    own_hit(cache, state, node)
    drop_leaf(state.pool.leaves, node)


@kernel_part
def _release(cache: Cache, state: Any, node: int) -> None:
    state.pool.turn[0] += 1
    state.pool.released[node] = state.pool.turn[0]
    leaf_released(cache, state.pool.leaves, node)


def _evict(cache: Cache, state: Any, node: int) -> None:
    own_evict(cache, state, node)
    leaf_evicted(cache, state.pool.leaves, node)


def _victim(cache: Cache, state: Any, incoming: int) -> int:
    pool = state.pool
    leaves = pool.leaves
    scans_all = pool.sample[0] == 0 or leaves.total[0] <= pool.sample[0]
    best = -1
    best_score = 0.0
    for index in range(leaves.total[0] if scans_all else pool.sample[0]):
        node = int(leaves.slots[index]) if scans_all else draw(leaves)
        found = own_score(cache, state, node)
        if best < 0 or found < best_score or (found == best_score and pool.released[node] < pool.released[best]):
            best = node
            best_score = found
    return best


def sampled_hooks(
    make_state: Callable[[Setting], Any],
    score: Callable[[Cache, Any, int], float],
    *,
    on_hit: Hook = no_op,
    on_miss: Hook = no_op,
    on_admit: Hook = no_op,
    on_evict: Hook = no_op,
    after_request: Callable[[Cache, Any], None] = no_op_after,
    worth: Callable[[Cache, Any, int], float] = worth_nothing,
    weights: Callable[[Any], NDArray[np.float64]] | None = None,
) -> EvictionHooks:
    """Hooks that keep the pool; the policy's own run first. The state holds its `Pool` as field `pool`."""
    return EvictionHooks(
        make_state,
        filled(_victim, own_score=score),
        on_hit=filled(_hit, own_hit=on_hit),
        on_miss=on_miss,
        on_admit=on_admit,
        on_release=_release,
        on_evict=filled(_evict, own_evict=on_evict),
        after_request=after_request,
        worth=worth,
        weights=weights,
    )


class SampledReference(ReferenceEviction):
    """The definition over the same draws; `score` must be written, and `super()` called in the hooks overridden."""

    def __init__(self, setting: Setting, view: View, sample: int) -> None:
        super().__init__(setting, view)
        self._leaves = make_leaves(setting.node_count, setting.seed)
        self._sample = sample
        self._turn = 0
        self._released: dict[int, int] = {}

    def score(self, node: int) -> float:
        raise NotImplementedError

    def on_hit(self, node: int) -> None:
        drop_leaf(self._leaves, node)

    def on_release(self, node: int) -> None:
        self._turn += 1
        self._released[node] = self._turn
        if self.view.is_evictable(node):
            add_leaf(self._leaves, node)

    def on_evict(self, node: int) -> None:
        drop_leaf(self._leaves, node)
        parent = self.view.freed_parent(node)
        if parent >= 0 and not self.view.is_pinned(parent):
            add_leaf(self._leaves, parent)

    def victim(self, incoming: int) -> int:
        count = int(self._leaves.total[0])
        if self._sample == 0 or count <= self._sample:
            candidates = [int(node) for node in self._leaves.slots[:count]]
        else:
            candidates = [draw(self._leaves) for _ in range(self._sample)]
        return min(candidates, key=lambda node: (self.score(node), self._released[node]), default=-1)
