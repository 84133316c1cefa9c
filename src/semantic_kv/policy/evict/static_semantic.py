"""The original's static semantic score: ``w(label) * max(1, ln(1 + n)) * max(1, saved_ms) / max(1, sqrt(tokens))``.

Lowest leaves first. `n` counts accesses since admission, `saved_ms` starts at tokens * latency and grows by that at
every hit. Its published admission is admission ``score``, where an incoming block claims ``saved_ms = tokens``: a unit
error of the original (12.5 times too high at 0.08 ms a token), kept.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import Cache, EvictionPolicy, Setting, View
from semantic_kv.policy.structure.label_weights import PUBLISHED_WEIGHTS
from semantic_kv.policy.structure.ranked import Order, RankedReference, make_order, ranked_hooks
from sembase.compiled import kernel_part

_DEFAULTS = {"ms_per_token": 0.08}


class Reference(RankedReference):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._accesses: dict[int, int] = {}

    def on_hit(self, node: int) -> None:
        self._accesses[node] += 1

    def on_admit(self, node: int) -> None:
        self._accesses[node] = 1

    def on_evict(self, node: int) -> None:
        del self._accesses[node]

    def key(self, node: int) -> float:
        tokens, accesses = int(self.view.tokens[node]), self._accesses.get(node, 1)
        per_token = self.setting.options["ms_per_token"] if node in self._accesses else 1.0
        saved_ms = accesses * tokens * per_token
        weight = float(PUBLISHED_WEIGHTS[self.view.label[node]])
        return weight * max(1.0, math.log(1 + accesses)) * max(1.0, saved_ms) / max(1.0, math.sqrt(tokens))

    worth = key


class State(NamedTuple):
    order: Order
    weights: NDArray[np.float64]
    ms_per_token: NDArray[np.float64]  # one element
    accesses: NDArray[np.int32]  # since admission; 0: not resident


def make_state(setting: Setting) -> State:
    return State(
        make_order(setting.node_count),
        PUBLISHED_WEIGHTS.copy(),
        np.full(1, setting.options["ms_per_token"]),
        np.zeros(setting.node_count, np.int32),
    )


@kernel_part
def hit(cache: Cache, state: State, node: int) -> None:
    state.accesses[node] += 1


@kernel_part
def admit(cache: Cache, state: State, node: int) -> None:
    state.accesses[node] = 1


@kernel_part
def evict(cache: Cache, state: State, node: int) -> None:
    state.accesses[node] = 0


@kernel_part
def key(cache: Cache, state: State, node: int) -> float:
    tokens = cache.tokens[node]
    accesses = max(1, state.accesses[node])
    per_token = state.ms_per_token[0] if state.accesses[node] else 1.0
    saved_ms = accesses * tokens * per_token
    weight = state.weights[cache.label[node]]
    return float(weight * max(1.0, math.log(1 + accesses)) * max(1.0, saved_ms) / max(1.0, math.sqrt(tokens)))


POLICY = EvictionPolicy(
    "static_semantic",
    Reference,
    ranked_hooks(make_state, key, on_hit=hit, on_admit=admit, on_evict=evict, worth=key),
    _DEFAULTS,
)
