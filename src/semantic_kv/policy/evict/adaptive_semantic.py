"""The original's adaptive semantic policy, exactly as published; lowest score leaves first.

``w_t(label) * max(1, 1 + ln(1+n) + 0.25 n) * max(0.05, exp(-age/60 s)) * max(1, saved_ms) / max(1, tokens^0.15)``.
After each request: a regretted miss (a block evicted before) raises its label's weight by 0.18 + min(0.12, tok/1000), a
hit by 0.01 + min(0.04, tok/4000), at most to 5; every resident block never hit and older than 60 s lowers it by 0.5 %,
at least to 0.2. Its published admission is ``score``: here user and other blocks are worth less than anything.
Every eviction and every request look at all evictable or resident blocks: O(resident), as published.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import Cache, EvictionPolicy, Setting, View
from semantic_kv.policy.structure.clock import Clock, PlainClock, clock_ms, make_clock
from semantic_kv.policy.structure.label_weights import PUBLISHED_WEIGHTS
from semantic_kv.policy.structure.leaves import Leaves, add_leaf, drop_leaf, make_leaves
from semantic_kv.policy.structure.sampled import Pool, SampledReference, make_pool, sampled_hooks
from sembase.compiled import kernel_part
from sembase.labels import OTHER, label_index

_DEFAULTS = {"ms_per_token": 0.08}
_USER = label_index("user")
_DECAY_MS = 60_000.0


class Reference(SampledReference):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view, sample=0)
        self._clock = PlainClock(view)
        self._weights = PUBLISHED_WEIGHTS.copy()
        self._accesses: dict[int, int] = {}
        self._accessed_ms: dict[int, float] = {}
        self._created_ms: dict[int, float] = {}
        self._evicted: set[int] = set()
        self._raises = np.zeros(len(PUBLISHED_WEIGHTS))

    def on_hit(self, node: int) -> None:
        super().on_hit(node)
        self._accesses[node] += 1
        self._accessed_ms[node] = self._clock.now_ms()
        self._raises[self.view.label[node]] += 0.01 + min(0.04, int(self.view.tokens[node]) / 4000)

    def on_miss(self, node: int) -> None:
        self._clock.now_ms()
        if node in self._evicted:
            self._raises[self.view.label[node]] += 0.18 + min(0.12, int(self.view.tokens[node]) / 1000)

    def on_admit(self, node: int) -> None:
        self._accesses[node] = 1
        self._accessed_ms[node] = self._created_ms[node] = self._clock.now_ms()

    def on_evict(self, node: int) -> None:
        super().on_evict(node)
        del self._accesses[node]
        self._evicted.add(node)

    def after_request(self) -> None:
        self._weights = np.minimum(5.0, self._weights + self._raises)
        self._raises[:] = 0.0
        for node, accesses in self._accesses.items():
            if accesses == 1 and self._clock.now_ms() - self._created_ms[node] > _DECAY_MS:
                label = int(self.view.label[node])
                self._weights[label] = max(0.2, self._weights[label] * 0.995)

    def score(self, node: int) -> float:
        if node not in self._accesses:
            return self._formula(node, 1, 1.0, 0.0)
        age_ms = self._clock.now_ms() - self._accessed_ms[node]
        return self._formula(node, self._accesses[node], self.setting.options["ms_per_token"], age_ms)

    def _formula(self, node: int, accesses: int, per_token: float, age_ms: float) -> float:
        tokens = int(self.view.tokens[node])
        reuse = max(1.0, 1.0 + math.log(1 + accesses) + 0.25 * accesses)
        fresh = max(0.05, math.exp(-age_ms / _DECAY_MS))
        value = float(self._weights[self.view.label[node]]) * reuse * fresh
        return float(value * max(1.0, accesses * tokens * per_token) / max(1.0, tokens**0.15))

    def worth(self, node: int) -> float:
        is_refused = node not in self._accesses and self.view.label[node] in (_USER, OTHER)
        return -1.0 if is_refused else self.score(node)

    def weights(self) -> NDArray[np.float64]:
        return self._weights


class State(NamedTuple):
    pool: Pool
    clock: Clock
    weights: NDArray[np.float64]
    raises: NDArray[np.float64]  # per label, of the request being served
    ms_per_token: NDArray[np.float64]  # one element
    accesses: NDArray[np.int32]  # since admission; 0: not resident, -1: evicted before
    accessed_ms: NDArray[np.float64]
    created_ms: NDArray[np.float64]
    never_hit: Leaves  # residents without a hit, for the decay


def make_state(setting: Setting) -> State:
    nodes = setting.node_count
    return State(
        make_pool(setting, sample=0),
        make_clock(),
        PUBLISHED_WEIGHTS.copy(),
        np.zeros(len(PUBLISHED_WEIGHTS)),
        np.full(1, setting.options["ms_per_token"]),
        np.zeros(nodes, np.int32),
        np.zeros(nodes),
        np.zeros(nodes),
        make_leaves(nodes, 0),
    )


@kernel_part
def hit(cache: Cache, state: State, node: int) -> None:
    state.accesses[node] += 1
    state.accessed_ms[node] = clock_ms(cache, state.clock)
    state.raises[cache.label[node]] += 0.01 + min(0.04, cache.tokens[node] / 4000)
    drop_leaf(state.never_hit, node)


@kernel_part
def miss(cache: Cache, state: State, node: int) -> None:
    clock_ms(cache, state.clock)
    if state.accesses[node] < 0:
        state.raises[cache.label[node]] += 0.18 + min(0.12, cache.tokens[node] / 1000)


@kernel_part
def admit(cache: Cache, state: State, node: int) -> None:
    state.accesses[node] = 1
    state.accessed_ms[node] = clock_ms(cache, state.clock)
    state.created_ms[node] = state.accessed_ms[node]
    add_leaf(state.never_hit, node)


@kernel_part
def evict(cache: Cache, state: State, node: int) -> None:
    state.accesses[node] = -1
    drop_leaf(state.never_hit, node)


@kernel_part
def after_request(cache: Cache, state: State) -> None:
    for label in range(len(state.weights)):
        state.weights[label] = min(5.0, state.weights[label] + state.raises[label])
        state.raises[label] = 0.0
    now_ms = clock_ms(cache, state.clock)
    for slot in range(state.never_hit.total[0]):
        node = state.never_hit.slots[slot]
        if now_ms - state.created_ms[node] > _DECAY_MS:
            label = cache.label[node]
            state.weights[label] = max(0.2, state.weights[label] * 0.995)


@kernel_part
def score(cache: Cache, state: State, node: int) -> float:
    is_resident = state.accesses[node] > 0
    accesses = max(1, state.accesses[node])
    per_token = state.ms_per_token[0] if is_resident else 1.0
    age_ms = state.clock.now_ms[0] - state.accessed_ms[node] if is_resident else 0.0
    tokens = cache.tokens[node]
    reuse = max(1.0, 1.0 + math.log(1 + accesses) + 0.25 * accesses)
    fresh = max(0.05, math.exp(-age_ms / _DECAY_MS))
    value = state.weights[cache.label[node]] * reuse * fresh
    return float(value * max(1.0, accesses * tokens * per_token) / max(1.0, tokens**0.15))


@kernel_part
def worth(cache: Cache, state: State, node: int) -> float:
    if state.accesses[node] <= 0 and (cache.label[node] == _USER or cache.label[node] == OTHER):
        return -1.0
    return score(cache, state, node)


def weights(state: State) -> NDArray[np.float64]:
    return state.weights


POLICY = EvictionPolicy(
    "adaptive_semantic",
    Reference,
    sampled_hooks(
        make_state,
        score,
        on_hit=hit,
        on_miss=miss,
        on_admit=admit,
        on_evict=evict,
        after_request=after_request,
        worth=worth,
        weights=weights,
    ),
    _DEFAULTS,
)
