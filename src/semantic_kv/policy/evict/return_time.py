"""Ours: evict the block whose class promises the fewest returns a unit of cache time from its age on, learnt online.

Blocks of a conversation come back after a think time or never; the shape of the request that used them predicts
which (`structure.return_model`). For the first requests all scores are equal, and ties leave LRU. Compares a
sample of the evictable blocks. 38 bytes per known node and 18 MB of tables.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.evict.return_time_reference import Reference
from semantic_kv.policy.interface import (
    FINISH,
    IS_TREE,
    REQUEST,
    SESSION,
    Cache,
    EvictionPolicy,
    Setting,
    size_of,
)
from semantic_kv.policy.structure.ages import AGES
from semantic_kv.policy.structure.return_model import (
    ROWS,
    SUPERSEDED,
    SUPERSEDED_MOST,
    ReturnModel,
    Shape,
    close_request,
    coarse_row,
    density_at,
    enter_coarse_row,
    fine_row,
    make_return_model,
    note_return,
    note_touch,
    refresh_densities,
)
from semantic_kv.policy.structure.sampled import Pool, make_pool, sampled_hooks
from sembase.compiled import kernel_part

# learn_first: requests to see before departing from LRU. learn_every 4 looks at every fourth block: a quarter of the
# cost, for traces with very long requests.
_DEFAULTS = {
    "sample": 64.0,
    "strength": 100.0,
    "half_life_requests": 8192.0,
    "refresh": 64.0,
    "learn_every": 1.0,
    "learn_first": 512.0,
}
LENGTH, KNOWN, WAITED, BRANCHES, DEEPEST = range(5)


class State(NamedTuple):
    pool: Pool
    model: ReturnModel
    rate: NDArray[np.float64]
    strength: NDArray[np.float64]  # one element
    fade: NDArray[np.float64]  # one element: per refresh
    refresh: NDArray[np.int64]  # [requests between refreshes, learn every ..., learn first ...]
    request: NDArray[np.int64]  # what is known of the request being served, by LENGTH ... DEEPEST
    row: NDArray[np.int32]  # its blocks
    last: NDArray[np.int32]  # last request that asked for a node; -1: none
    uses: NDArray[np.uint8]
    branches: NDArray[np.uint8]
    kind: NDArray[np.int32]  # a node's row of the model
    tip: NDArray[np.int32]  # the last block of the last request through a node
    session: NDArray[np.int32]  # of that request, noted at its last block


def make_state(setting: Setting) -> State:
    nodes, options = setting.node_count, setting.options
    return State(
        make_pool(setting, int(options["sample"])),
        make_return_model(),
        np.zeros((ROWS, AGES)),
        np.full(1, options["strength"]),
        np.full(1, 0.5 ** (options["refresh"] / options["half_life_requests"])),
        np.array([options["refresh"], options["learn_every"], options["learn_first"]], np.int64),
        np.zeros(5, np.int64),
        np.zeros(nodes, np.int32),
        np.full(nodes, -1, np.int32),
        np.zeros(nodes, np.uint8),
        np.zeros(nodes, np.uint8),
        np.zeros(nodes, np.int32),
        np.full(nodes, -1, np.int32),
        np.full(nodes, -1, np.int32),
    )


@kernel_part
def touch(cache: Cache, state: State, node: int) -> None:
    now = cache.counts[REQUEST]
    last = state.last[node]
    if last == now:
        return
    if last >= 0:
        state.request[KNOWN] += 1
        state.request[WAITED] = now - last
        state.request[BRANCHES] = state.branches[node]
        state.request[DEEPEST] = node
        if node % state.refresh[1] == 0:
            note_return(state.model, int(state.kind[node]), last, now)
        state.uses[node] = min(255, state.uses[node] + 1)
    state.last[node] = now
    state.row[state.request[LENGTH]] = node
    state.request[LENGTH] += 1


@kernel_part
def supersede(cache: Cache, state: State) -> None:
    """The request continues an earlier one of its session, at least in part: blocks of that which it leaves behind."""
    deepest = int(state.request[DEEPEST])
    tip = int(state.tip[deepest]) if state.request[KNOWN] > 0 else -1
    if tip < 0 or tip == deepest or cache.facts[SESSION] < 0 or state.session[tip] != cache.facts[SESSION]:
        return
    left = 0
    node = tip
    while node != deepest:
        left += 1
        node = int(cache.parent[node])
    ending = SUPERSEDED if left <= state.request[KNOWN] else SUPERSEDED_MOST
    node = tip
    while node != deepest:
        state.kind[node] = enter_coarse_row(state.model, ending, int(cache.label[node]), int(state.uses[node]))
        node = int(cache.parent[node])


@kernel_part
def after_request(cache: Cache, state: State) -> None:
    now = cache.counts[REQUEST]
    length = state.request[LENGTH]
    known = state.request[KNOWN]
    if cache.counts[IS_TREE]:
        supersede(cache, state)
    shape = Shape(
        known,
        length - known,
        state.request[BRANCHES],
        state.request[WAITED],
        cache.facts[FINISH] + 1,
    )
    last = int(state.row[length - 1]) if length > 0 else -1
    for at in range(length):
        node = int(state.row[at])
        is_last = 1 if at == length - 1 else 0
        state.tip[node] = last
        state.kind[node] = fine_row(state.model, int(cache.label[node]), int(state.uses[node]), is_last, shape)
        if node % state.refresh[1] == 0:
            note_touch(state.model, node)
    if length > 0:
        state.session[last] = cache.facts[SESSION]
    if 0 < known < length:
        deepest = state.request[DEEPEST]
        state.branches[deepest] = min(255, state.branches[deepest] + 1)
    state.request[:] = 0
    close_request(state.model, state.last, state.kind, now)
    if now % state.refresh[0] == 0 or (now < 2048 and now % 16 == 0):
        fade = state.fade[0] if now % state.refresh[0] == 0 else 1.0
        refresh_densities(state.model, state.rate, state.strength[0], fade)


@kernel_part
def score(cache: Cache, state: State, node: int) -> float:
    if cache.counts[REQUEST] < state.refresh[2]:
        return 0.0
    waited = cache.counts[REQUEST] - state.last[node]
    return density_at(state.model, int(state.kind[node]), waited) / size_of(cache, node)


@kernel_part
def worth(cache: Cache, state: State, node: int) -> float:
    """Of a resident block its score; of one that asks to enter, what its label and uses promise."""
    if cache.children[node] >= 0:
        return score(cache, state, node)
    row = coarse_row(0, int(cache.label[node]), int(state.uses[node]))
    return float(state.model.density[row, 0]) / size_of(cache, node)


POLICY = EvictionPolicy(
    "return_time",
    Reference,
    sampled_hooks(make_state, score, on_hit=touch, on_miss=touch, after_request=after_request, worth=worth),
    _DEFAULTS,
)
