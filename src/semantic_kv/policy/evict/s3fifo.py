"""S3-FIFO (SOSP 2023): a small queue for newcomers, a main queue for what was used again, a ghost of who left early.

Prefix tree: the queues hold leaves, the sizes count all blocks. A parent that loses its last child takes the child's
place where both belong to one queue, else the oldest place of its own. Pinned blocks are passed over.
While nothing was evicted yet and the small queue is full, newcomers fill the main queue.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.evict.s3fifo_reference import Reference, limits_of
from semantic_kv.policy.interface import Cache, EvictionHooks, EvictionPolicy, Setting, freed_parent, size_of
from semantic_kv.policy.structure.links import (
    Links,
    ahead_of,
    is_linked,
    make_links,
    push_head,
    push_tail,
    tail,
    take_place,
    unlink,
)
from sembase.compiled import kernel_part

SMALL, MAIN, GHOST, NOWHERE = range(4)  # lists of `queues`, positions in `used` and the first two in `limits`
PROMOTE_AT, MAX_USES = 3, 4  # further positions in `limits`
HAS_EVICTED, RETURNING = 3, 4  # further positions in `used`
_MAIN_USES = 3  # the main queue counts to three, as a two-bit clock does


class State(NamedTuple):
    """10 bytes per known node; the ghost is made of nodes, so it takes nothing more."""

    queues: Links
    member: NDArray[np.uint8]
    uses: NDArray[np.uint8]
    limits: NDArray[np.int64]
    used: NDArray[np.int64]


def make_state(setting: Setting) -> State:
    limits = limits_of(setting)
    return State(
        make_links(setting.node_count, 3),
        np.full(setting.node_count, NOWHERE, np.uint8),
        np.zeros(setting.node_count, np.uint8),
        np.array([*limits, max(_MAIN_USES, limits[-1])], np.int64),
        np.array([0, 0, 0, 0, -1], np.int64),
    )


@kernel_part
def on_hit(cache: Cache, state: State, node: int) -> None:
    if state.uses[node] < state.limits[MAX_USES]:
        state.uses[node] += 1


@kernel_part
def on_miss(cache: Cache, state: State, node: int) -> None:
    state.used[RETURNING] = -1
    if state.member[node] == GHOST:
        _forget(cache, state, node)
        state.used[RETURNING] = node


@kernel_part
def _forget(cache: Cache, state: State, node: int) -> None:
    unlink(state.queues, node)
    state.member[node] = NOWHERE
    state.used[GHOST] -= size_of(cache, node)


@kernel_part
def on_admit(cache: Cache, state: State, node: int) -> None:
    is_filling = state.used[HAS_EVICTED] == 0 and state.used[SMALL] >= state.limits[SMALL]
    member = MAIN if is_filling or state.used[RETURNING] == node else SMALL
    state.member[node] = member
    state.uses[node] = 0
    state.used[member] += size_of(cache, node)
    parent = int(cache.parent[node])
    if parent >= 0:
        unlink(state.queues, parent)


@kernel_part
def on_release(cache: Cache, state: State, node: int) -> None:
    if cache.children[node] == 0 and not is_linked(state.queues, node):
        push_head(state.queues, int(state.member[node]), node)


@kernel_part
def on_evict(cache: Cache, state: State, node: int) -> None:
    member = int(state.member[node])
    state.used[member] -= size_of(cache, node)
    parent = freed_parent(cache, node)
    if parent >= 0 and not is_linked(state.queues, parent):
        if state.member[parent] == member:
            take_place(state.queues, parent, node)
        else:
            push_tail(state.queues, int(state.member[parent]), parent)
    unlink(state.queues, node)
    state.member[node] = NOWHERE
    if member == SMALL and size_of(cache, node) <= state.limits[GHOST]:
        while state.used[GHOST] + size_of(cache, node) > state.limits[GHOST]:
            _forget(cache, state, tail(state.queues, GHOST))
        push_head(state.queues, GHOST, node)
        state.member[node] = GHOST
        state.used[GHOST] += size_of(cache, node)


@kernel_part
def _oldest(cache: Cache, state: State, chosen: int) -> int:
    node = tail(state.queues, chosen)
    while node >= 0 and cache.pinned[node]:
        node = ahead_of(state.queues, node)
    return node


@kernel_part
def _spare(cache: Cache, state: State, node: int) -> bool:
    """Give the block that is next in its queue another round if it earned one."""
    if state.member[node] == SMALL:
        if state.uses[node] < state.limits[PROMOTE_AT]:
            return False
        state.uses[node] = 0
        state.used[SMALL] -= size_of(cache, node)
        state.used[MAIN] += size_of(cache, node)
        state.member[node] = MAIN
    else:
        if state.uses[node] == 0:
            return False
        state.uses[node] = min(int(state.uses[node]), _MAIN_USES) - 1
    unlink(state.queues, node)
    push_head(state.queues, MAIN, node)
    return True


@kernel_part
def victim(cache: Cache, state: State, incoming: int) -> int:
    state.used[HAS_EVICTED] = 1
    chosen = MAIN if state.used[MAIN] > state.limits[MAIN] else SMALL
    while True:
        node = _oldest(cache, state, chosen)
        if node < 0:
            chosen = SMALL if chosen == MAIN else MAIN
            node = _oldest(cache, state, chosen)
        if node < 0 or not _spare(cache, state, node):
            return node


POLICY = EvictionPolicy(
    "s3fifo",
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
    defaults={"small_ratio": 0.1, "ghost_ratio": 0.9, "promote_at": 2},
)
