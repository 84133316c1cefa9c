"""LRU-2: the block whose second last request is longest ago leaves first; blocks asked for once go before all others.

History survives eviction (exact, 8 bytes per known node, where the original keeps it for a bounded period).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import REQUEST, Cache, EvictionPolicy, Setting, View
from semantic_kv.policy.structure.ranked import Order, RankedReference, make_order, ranked_hooks
from sembase.compiled import kernel_part


class Reference(RankedReference):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._asked: dict[int, list[int]] = {}

    def on_hit(self, node: int) -> None:
        asked = self._asked.setdefault(node, [])
        if not asked or asked[-1] != self.view.request:
            asked.append(self.view.request)

    on_miss = on_hit

    def key(self, node: int) -> float:
        asked = self._asked[node]
        return float(asked[-2]) if len(asked) >= 2 else -1.0


class State(NamedTuple):
    order: Order
    last: NDArray[np.int32]  # -1: never asked for
    second_last: NDArray[np.int32]


def make_state(setting: Setting) -> State:
    nodes = setting.node_count
    return State(make_order(nodes), np.full(nodes, -1, np.int32), np.full(nodes, -1, np.int32))


@kernel_part
def asked(cache: Cache, state: State, node: int) -> None:
    if state.last[node] != cache.counts[REQUEST]:
        state.second_last[node] = state.last[node]
        state.last[node] = cache.counts[REQUEST]


@kernel_part
def key(cache: Cache, state: State, node: int) -> float:
    return float(state.second_last[node])


POLICY = EvictionPolicy("lru_k", Reference, ranked_hooks(make_state, key, on_hit=asked, on_miss=asked))
