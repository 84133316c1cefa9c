"""Greedy-dual size frequency: lowest ``inflation + uses * cost / size`` leaves; the inflation is the last key evicted.

Cost is a fixed part and the tokens to compute again, size the tokens, so equal blocks give LFU with dynamic aging.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import Cache, EvictionPolicy, Setting, View
from semantic_kv.policy.structure.ranked import Order, RankedReference, make_order, ranked_hooks
from sembase.compiled import kernel_part

_DEFAULTS = {"fixed_cost_tokens": 64.0}


class Reference(RankedReference):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._inflation = 0.0
        self._uses: dict[int, int] = {}
        self._key: dict[int, float] = {}

    def _touch(self, node: int) -> None:
        tokens = max(1, int(self.view.tokens[node]))
        cost = self.setting.options["fixed_cost_tokens"] + tokens
        self._key[node] = self._inflation + self._uses[node] * cost / tokens

    def on_hit(self, node: int) -> None:
        self._uses[node] += 1
        self._touch(node)

    def on_admit(self, node: int) -> None:
        self._uses[node] = 1
        self._touch(node)

    def on_evict(self, node: int) -> None:
        self._inflation = max(self._inflation, self._key[node])

    def key(self, node: int) -> float:
        return self._key[node]


class State(NamedTuple):
    order: Order
    inflation: NDArray[np.float64]  # one element
    fixed_cost_tokens: NDArray[np.float64]  # one element
    uses: NDArray[np.int32]
    rank: NDArray[np.float64]


def make_state(setting: Setting) -> State:
    nodes = setting.node_count
    fixed = np.full(1, setting.options["fixed_cost_tokens"])
    return State(make_order(nodes), np.zeros(1), fixed, np.zeros(nodes, np.int32), np.zeros(nodes))


@kernel_part
def _touch(cache: Cache, state: State, node: int) -> None:
    tokens = max(1, cache.tokens[node])
    cost = state.fixed_cost_tokens[0] + tokens
    state.rank[node] = state.inflation[0] + state.uses[node] * cost / tokens


@kernel_part
def hit(cache: Cache, state: State, node: int) -> None:
    state.uses[node] += 1
    _touch(cache, state, node)


@kernel_part
def admit(cache: Cache, state: State, node: int) -> None:
    state.uses[node] = 1
    _touch(cache, state, node)


@kernel_part
def evict(cache: Cache, state: State, node: int) -> None:
    state.inflation[0] = max(state.inflation[0], state.rank[node])


@kernel_part
def key(cache: Cache, state: State, node: int) -> float:
    return float(state.rank[node])


POLICY = EvictionPolicy(
    "gdsf", Reference, ranked_hooks(make_state, key, on_hit=hit, on_admit=admit, on_evict=evict), _DEFAULTS
)
