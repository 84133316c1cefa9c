"""Per-category reuse time (after "KVCache in the wild"): the block least likely to return soon leaves.

A category is (label, uses so far up to 3). Each learns online how often its blocks return and after how many requests
on average (exponential, as the paper fits); a block unused for `age` returns within `life` requests with probability
``r e^(-age/m) / (r e^(-age/m) + 1 - r) * (1 - e^(-life/m))``. `life` is capacity over the blocks admitted a request.
Compares all evictable blocks, or a sample of them. 21 bytes per known node.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import CAPACITY, REQUEST, Cache, EvictionPolicy, Setting, View, size_of
from semantic_kv.policy.structure.sampled import Pool, SampledReference, make_pool, sampled_hooks
from sembase.compiled import kernel_part
from sembase.labels import LABELS

_DEFAULTS = {"sample": 64.0}
_CATEGORIES = 4 * len(LABELS)
ASKED, RETURNED, GAPS = range(3)


class Reference(SampledReference):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view, int(setting.options["sample"]))
        self._learnt = [[2.0, 1.0, 32.0] for _ in range(_CATEGORIES)]
        self._uses: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self._admitted = 0

    def _ask(self, node: int) -> None:
        if node in self._last:
            if self._last[node] == self.view.request:
                return
            learnt = self._learnt[self._category(node)]
            learnt[RETURNED] += 1.0
            learnt[GAPS] += self.view.request - self._last[node]
        self._uses[node] = self._uses.get(node, -1) + 1
        self._last[node] = self.view.request
        self._learnt[self._category(node)][ASKED] += 1.0

    def _category(self, node: int) -> int:
        return 4 * int(self.view.label[node]) + min(3, self._uses[node])

    def on_hit(self, node: int) -> None:
        super().on_hit(node)
        self._ask(node)

    def on_miss(self, node: int) -> None:
        self._ask(node)

    def on_admit(self, node: int) -> None:
        self._admitted += self.view.size_of(node)

    def score(self, node: int) -> float:
        life = self.view.capacity * (self.view.request + 1) / max(1, self._admitted)
        asked, returned, gaps = self._learnt[self._category(node)]
        share, mean = min(0.999, returned / asked), gaps / returned
        waiting = share * math.exp(-(self.view.request - self._last[node]) / mean)
        return waiting / (waiting + 1.0 - share) * (1.0 - math.exp(-life / mean))


class State(NamedTuple):
    pool: Pool
    learnt: NDArray[np.float64]  # rows (asked, returned, sum of gaps), one a category
    admitted: NDArray[np.int64]  # one element, in units of capacity
    uses: NDArray[np.int8]  # before the last, up to 3
    last: NDArray[np.int32]


def make_state(setting: Setting) -> State:
    learnt = np.tile(np.array([2.0, 1.0, 32.0]), (_CATEGORIES, 1))
    pool = make_pool(setting, int(setting.options["sample"]))
    nodes = setting.node_count
    return State(pool, learnt, np.zeros(1, np.int64), np.zeros(nodes, np.int8), np.full(nodes, -1, np.int32))


@kernel_part
def _category(cache: Cache, state: State, node: int) -> int:
    return 4 * int(cache.label[node]) + int(state.uses[node])


@kernel_part
def ask(cache: Cache, state: State, node: int) -> None:
    now = cache.counts[REQUEST]
    last = state.last[node]
    if last == now:
        return
    if last >= 0:
        category = _category(cache, state, node)
        state.learnt[category, RETURNED] += 1.0
        state.learnt[category, GAPS] += now - last
        state.uses[node] = min(3, state.uses[node] + 1)
    state.last[node] = now
    state.learnt[_category(cache, state, node), ASKED] += 1.0


@kernel_part
def admit(cache: Cache, state: State, node: int) -> None:
    state.admitted[0] += size_of(cache, node)


@kernel_part
def score(cache: Cache, state: State, node: int) -> float:
    now = cache.counts[REQUEST]
    life = cache.counts[CAPACITY] * (now + 1) / max(1, state.admitted[0])
    learnt = state.learnt[_category(cache, state, node)]
    share = min(0.999, learnt[RETURNED] / learnt[ASKED])
    mean = learnt[GAPS] / learnt[RETURNED]
    waiting = share * math.exp(-(now - state.last[node]) / mean)
    return float(waiting / (waiting + 1.0 - share) * (1.0 - math.exp(-life / mean)))


POLICY = EvictionPolicy(
    "workload_aware",
    Reference,
    sampled_hooks(make_state, score, on_hit=ask, on_miss=ask, on_admit=admit),
    _DEFAULTS,
)
