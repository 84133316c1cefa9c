"""Least hit density, after LHD: evict the block whose class and age promise the fewest hits a unit of cache time.

As in the paper the density is learnt from hits and evictions of resident blocks, by class and age, re-made every
`refresh` requests with old events fading, and a sample of blocks is compared. A class is the block's number of hits (up
to 15); ages are requests in half octaves. Density is divided by size where the capacity counts tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import REQUEST, Cache, EvictionPolicy, Setting, View, size_of
from semantic_kv.policy.structure.ages import AGE_STARTS, AGES, age_bucket
from semantic_kv.policy.structure.sampled import Pool, SampledReference, make_pool, sampled_hooks
from sembase.compiled import kernel_part

_DEFAULTS = {"sample": 64.0, "refresh": 64.0, "fade": 0.9}
_CLASSES = 16
_WIDTHS = np.diff(np.append(AGE_STARTS, 2 * AGE_STARTS[-1])).astype(np.float64)


def _first_densities() -> NDArray[np.float64]:
    """Before anything is learnt younger is better: LRU."""
    return np.tile(1.0 / AGE_STARTS, (_CLASSES, 1))


@kernel_part
def make_densities(hits: NDArray[np.float64], ends: NDArray[np.float64], density: NDArray[np.float64]) -> None:
    """Per class, from the oldest age down: hits still to come over the cache time they will take."""
    for kind in range(hits.shape[0]):
        coming = 0.0
        events = 0.0
        lifetime = 0.0
        for age in range(hits.shape[1] - 1, -1, -1):
            coming += hits[kind, age]
            events += hits[kind, age] + ends[kind, age]
            lifetime += events * _WIDTHS[age]
            if lifetime > 0.0:
                density[kind, age] = coming / lifetime


class Reference(SampledReference):
    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view, int(setting.options["sample"]))
        self._hits, self._ends = np.zeros((_CLASSES, AGES)), np.zeros((_CLASSES, AGES))
        self._density = _first_densities()
        self._kind: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def _age(self, node: int) -> int:
        waited = max(1, self.view.request - self._last[node])
        return int(np.searchsorted(AGE_STARTS, waited, side="right")) - 1

    def on_hit(self, node: int) -> None:
        super().on_hit(node)
        self._hits[self._kind[node], self._age(node)] += 1.0
        self._kind[node] = min(_CLASSES - 1, self._kind[node] + 1)
        self._last[node] = self.view.request

    def on_admit(self, node: int) -> None:
        self._kind[node] = 0
        self._last[node] = self.view.request

    def on_evict(self, node: int) -> None:
        super().on_evict(node)
        self._ends[self._kind[node], self._age(node)] += 1.0

    def after_request(self) -> None:
        if self.view.request % int(self.setting.options["refresh"]) == 0:
            make_densities(self._hits, self._ends, self._density)
            self._hits *= self.setting.options["fade"]
            self._ends *= self.setting.options["fade"]

    def score(self, node: int) -> float:
        return float(self._density[self._kind[node], self._age(node)]) / self.view.size_of(node)


class State(NamedTuple):
    pool: Pool
    hits: NDArray[np.float64]
    ends: NDArray[np.float64]
    density: NDArray[np.float64]
    refresh: NDArray[np.int64]  # one element
    fade: NDArray[np.float64]  # one element
    kind: NDArray[np.int8]
    last: NDArray[np.int32]


def make_state(setting: Setting) -> State:
    nodes, options = setting.node_count, setting.options
    return State(
        make_pool(setting, int(options["sample"])),
        np.zeros((_CLASSES, AGES)),
        np.zeros((_CLASSES, AGES)),
        _first_densities(),
        np.full(1, int(options["refresh"]), np.int64),
        np.full(1, options["fade"]),
        np.zeros(nodes, np.int8),
        np.zeros(nodes, np.int32),
    )


@kernel_part
def _age(cache: Cache, state: State, node: int) -> int:
    return age_bucket(cache.counts[REQUEST] - state.last[node])


@kernel_part
def hit(cache: Cache, state: State, node: int) -> None:
    state.hits[state.kind[node], _age(cache, state, node)] += 1.0
    state.kind[node] = min(15, state.kind[node] + 1)
    state.last[node] = cache.counts[REQUEST]


@kernel_part
def admit(cache: Cache, state: State, node: int) -> None:
    state.kind[node] = 0
    state.last[node] = cache.counts[REQUEST]


@kernel_part
def evict(cache: Cache, state: State, node: int) -> None:
    state.ends[state.kind[node], _age(cache, state, node)] += 1.0


@kernel_part
def after_request(cache: Cache, state: State) -> None:
    if cache.counts[REQUEST] % state.refresh[0] == 0:
        make_densities(state.hits, state.ends, state.density)
        for kind in range(state.hits.shape[0]):
            for age in range(state.hits.shape[1]):
                state.hits[kind, age] *= state.fade[0]
                state.ends[kind, age] *= state.fade[0]


@kernel_part
def score(cache: Cache, state: State, node: int) -> float:
    return float(state.density[state.kind[node], _age(cache, state, node)]) / size_of(cache, node)


POLICY = EvictionPolicy(
    "lhd",
    Reference,
    sampled_hooks(make_state, score, on_hit=hit, on_admit=admit, on_evict=evict, after_request=after_request),
    _DEFAULTS,
)
