"""ARC (FAST 2003): blocks used once (T1) and again (T2), ghosts of both (B1, B2) that move the target between them.

Prefix tree: where the block that should leave still has children, the other list's oldest leaves instead; it is then
the least recently used block of all, hence a leaf.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.evict.arc_reference import Reference
from semantic_kv.policy.interface import CAPACITY, Cache, EvictionHooks, EvictionPolicy, Setting, size_of
from semantic_kv.policy.structure.links import Links, make_links, push_head, tail, unlink
from sembase.compiled import kernel_part

T1, T2, B1, B2, NOWHERE = range(5)  # lists of `lists`, positions in `used`
RETURNING, FROM, PLANNED, ON_LEAVE = range(4)  # positions in `now`
FORGET_B1, FORGET_B2, NO_GHOST, NOTHING = range(4)  # what `now[ON_LEAVE]` says happens when the planned block leaves


class State(NamedTuple):
    """9 bytes per known node."""

    lists: Links
    member: NDArray[np.uint8]
    used: NDArray[np.int64]
    target: NDArray[np.float64]  # one element: the size T1 should have
    now: NDArray[np.int64]


def make_state(setting: Setting) -> State:
    return State(
        make_links(setting.node_count, 4),
        np.full(setting.node_count, NOWHERE, np.uint8),
        np.zeros(4, np.int64),
        np.zeros(1, np.float64),
        np.array([-1, NOWHERE, -1, NOTHING], np.int64),
    )


@kernel_part
def _forget(cache: Cache, state: State, node: int) -> None:
    unlink(state.lists, node)
    state.used[state.member[node]] -= size_of(cache, node)
    state.member[node] = NOWHERE


@kernel_part
def on_hit(cache: Cache, state: State, node: int) -> None:
    _forget(cache, state, node)  # pinned blocks are in no list
    state.member[node] = T2
    state.used[T2] += size_of(cache, node)


@kernel_part
def on_miss(cache: Cache, state: State, node: int) -> None:
    member = int(state.member[node])
    state.now[RETURNING] = -1
    state.now[FROM] = NOWHERE
    if member == NOWHERE:
        return
    if member == B1:
        step = max(state.used[B2] / state.used[B1], 1.0)
        state.target[0] = min(state.target[0] + step, float(cache.counts[CAPACITY]))
    else:
        step = max(state.used[B1] / state.used[B2], 1.0)
        state.target[0] = max(state.target[0] - step, 0.0)
    _forget(cache, state, node)
    state.now[RETURNING] = node
    state.now[FROM] = member


@kernel_part
def on_admit(cache: Cache, state: State, node: int) -> None:
    member = T2 if state.now[RETURNING] == node else T1
    state.member[node] = member
    state.used[member] += size_of(cache, node)


@kernel_part
def on_release(cache: Cache, state: State, node: int) -> None:
    push_head(state.lists, int(state.member[node]), node)


@kernel_part
def on_evict(cache: Cache, state: State, node: int) -> None:
    action = state.now[ON_LEAVE] if state.now[PLANNED] == node else NOTHING
    if action == FORGET_B1:
        _forget(cache, state, tail(state.lists, B1))
    elif action == FORGET_B2:
        _forget(cache, state, tail(state.lists, B2))
    ghost = B1 if state.member[node] == T1 else B2
    _forget(cache, state, node)
    if action != NO_GHOST:
        state.member[node] = ghost
        state.used[ghost] += size_of(cache, node)
        push_head(state.lists, ghost, node)
    state.now[PLANNED] = -1


@kernel_part
def _plan(cache: Cache, state: State, incoming: int) -> int:
    """What must happen to the ghosts so that they stay within their bounds."""
    if state.now[RETURNING] == incoming:
        return NOTHING
    capacity = cache.counts[CAPACITY]
    once = state.used[T1] + state.used[B1]
    if once + size_of(cache, incoming) > capacity:
        return FORGET_B1 if state.used[B1] > 0 else NO_GHOST
    if state.used[B2] > 0 and once + state.used[T2] + state.used[B2] >= 2 * capacity:
        return FORGET_B2
    return NOTHING


@kernel_part
def victim(cache: Cache, state: State, incoming: int) -> int:
    action = _plan(cache, state, incoming)
    once, target = state.used[T1], state.target[0]
    from_once = once > 0 and (
        once > target or (once == target and state.now[RETURNING] == incoming and state.now[FROM] == B2)
    )
    chosen = T1 if from_once or state.used[T2] == 0 or action == NO_GHOST else T2
    node = tail(state.lists, chosen)
    if node < 0 or cache.children[node] > 0:
        node = tail(state.lists, T2 if chosen == T1 else T1)
        if node < 0 or cache.children[node] > 0:
            return -1
    state.now[PLANNED] = node
    state.now[ON_LEAVE] = action
    return node


POLICY = EvictionPolicy(
    "arc",
    Reference,
    EvictionHooks(
        make_state,
        victim,
        on_hit=on_hit,
        on_miss=on_miss,
        on_admit=on_admit,
        on_release=on_release,
        on_evict=on_evict,
    ),
)
