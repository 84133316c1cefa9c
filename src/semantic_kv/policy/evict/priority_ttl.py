"""Priorities with durations, as TensorRT-LLM offers them: lowest priority leaves first, least recently used inside one.

A block has the priority of its label until `duration_ms` after its last use (0: for ever), then the default. The
operator sets them; the defaults here keep system prompts and templates. 64 bytes per known node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import (
    Cache,
    EvictionHooks,
    EvictionPolicy,
    Setting,
    View,
    freed_parent,
    is_evictable,
)
from semantic_kv.policy.structure.heap import Heap, drop, make_heap, put, smallest
from semantic_kv.policy.structure.ranked import RankedReference
from sembase.compiled import kernel_part
from sembase.labels import LABELS

_DEFAULT_PRIORITY = 35.0
_DEFAULTS = {
    "duration_ms": 0.0,
    **{label: {"system": 90.0, "template": 80.0}.get(label, _DEFAULT_PRIORITY) for label in LABELS},
}


class Reference(RankedReference):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._used_ms: dict[int, float] = {}

    def on_release(self, node: int) -> None:
        super().on_release(node)
        self._used_ms[node] = self.view.now_ms

    def key(self, node: int) -> float:
        duration_ms = self.setting.options["duration_ms"]
        if duration_ms > 0 and self._used_ms[node] + duration_ms <= self.view.now_ms:
            return _DEFAULT_PRIORITY
        return self.setting.options[LABELS[self.view.label[node]]]


class State(NamedTuple):
    priority: NDArray[np.float64]  # one a label
    duration_ms: NDArray[np.float64]  # one element
    order: Heap  # evictable blocks by (priority, turn of release)
    expiry: Heap  # those of them whose priority will end, by when
    turn: NDArray[np.int64]  # one element
    released: NDArray[np.int64]
    used_ms: NDArray[np.float64]


def make_state(setting: Setting) -> State:
    nodes = setting.node_count
    return State(
        np.array([setting.options[label] for label in LABELS]),
        np.full(1, setting.options["duration_ms"]),
        make_heap(nodes),
        make_heap(nodes),
        np.zeros(1, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes),
    )


@kernel_part
def _enlist(cache: Cache, state: State, node: int) -> None:
    priority = state.priority[cache.label[node]]
    if state.duration_ms[0] > 0.0:
        ends_ms = state.used_ms[node] + state.duration_ms[0]
        if ends_ms <= cache.now_ms[0]:
            priority = _DEFAULT_PRIORITY
        else:
            put(state.expiry, node, ends_ms, state.released[node])
    put(state.order, node, priority, state.released[node])


@kernel_part
def on_hit(cache: Cache, state: State, node: int) -> None:
    drop(state.order, node)
    drop(state.expiry, node)


@kernel_part
def on_release(cache: Cache, state: State, node: int) -> None:
    state.turn[0] += 1
    state.released[node] = state.turn[0]
    state.used_ms[node] = cache.now_ms[0]
    if is_evictable(cache, node):
        _enlist(cache, state, node)


@kernel_part
def on_evict(cache: Cache, state: State, node: int) -> None:
    on_hit(cache, state, node)
    parent = freed_parent(cache, node)
    if parent >= 0 and cache.pinned[parent] == 0:
        _enlist(cache, state, parent)


@kernel_part
def victim(cache: Cache, state: State, incoming: int) -> int:
    expired = smallest(state.expiry)
    while expired >= 0 and state.expiry.major[expired] <= cache.now_ms[0]:
        drop(state.expiry, expired)
        put(state.order, expired, _DEFAULT_PRIORITY, state.released[expired])
        expired = smallest(state.expiry)
    return smallest(state.order)


POLICY = EvictionPolicy(
    "priority_ttl",
    Reference,
    EvictionHooks(make_state, victim, on_hit=on_hit, on_release=on_release, on_evict=on_evict),
    _DEFAULTS,
)
