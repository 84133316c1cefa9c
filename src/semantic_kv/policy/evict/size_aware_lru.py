"""The original's size-aware LRU: lowest ``last_access_ms / tokens`` leaves first.

Kept as published: an absolute clock over a size, so a large recent block leaves before a tiny old one, and the origin
of the clock changes the order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import Cache, EvictionPolicy, Setting, View
from semantic_kv.policy.structure.clock import Clock, PlainClock, clock_ms, make_clock
from semantic_kv.policy.structure.ranked import Order, RankedReference, make_order, ranked_hooks
from sembase.compiled import kernel_part


class Reference(RankedReference):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._clock = PlainClock(view)
        self._accessed_ms: dict[int, float] = {}

    def on_hit(self, node: int) -> None:
        self._accessed_ms[node] = self._clock.now_ms()

    on_miss = on_hit

    def key(self, node: int) -> float:
        return self._accessed_ms[node] / max(1, int(self.view.tokens[node]))


class State(NamedTuple):
    order: Order
    clock: Clock
    accessed_ms: NDArray[np.float64]


def make_state(setting: Setting) -> State:
    return State(make_order(setting.node_count), make_clock(), np.zeros(setting.node_count, np.float64))


@kernel_part
def access(cache: Cache, state: State, node: int) -> None:
    state.accessed_ms[node] = clock_ms(cache, state.clock)


@kernel_part
def key(cache: Cache, state: State, node: int) -> float:
    return float(state.accessed_ms[node] / max(1, cache.tokens[node]))


POLICY = EvictionPolicy("size_aware_lru", Reference, ranked_hooks(make_state, key, on_hit=access, on_miss=access))
