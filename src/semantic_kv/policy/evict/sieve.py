"""SIEVE (NSDI 2024): a queue that never moves and a hand that spares what was used since it last came by.

Prefix tree: the queue holds leaves. A leaf that gets a child leaves it; a parent that loses its last child takes the
child's place, so a chain is eaten from its end while its blocks stay unused. Without a tree this is SIEVE as published.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import (
    RESIDENT,
    Cache,
    EvictionHooks,
    EvictionPolicy,
    ReferenceEviction,
    Setting,
    View,
    freed_parent,
)
from semantic_kv.policy.structure.links import (
    Links,
    ahead_of,
    is_linked,
    make_links,
    push_head,
    tail,
    take_place,
    unlink,
)
from sembase.compiled import kernel_part


class Reference(ReferenceEviction):
    """A Python list, oldest first; the hand is the block it would look at next, None for the oldest."""

    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._queue: list[int] = []
        self._used: set[int] = set()
        self._hand: int | None = None

    def on_hit(self, node: int) -> None:
        self._used.add(node)

    def on_admit(self, node: int) -> None:
        self._used.discard(node)
        self._leave(int(self.view.parent[node]), heir=-1)

    def on_release(self, node: int) -> None:
        if self.view.is_leaf(node) and node not in self._queue:
            self._queue.append(node)

    def on_evict(self, node: int) -> None:
        self._leave(node, heir=self.view.freed_parent(node))

    def victim(self, incoming: int) -> int:
        if all(self.view.is_pinned(node) for node in self._queue):
            return -1
        at = 0 if self._hand is None else self._queue.index(self._hand)
        while self.view.is_pinned(self._queue[at]) or self._queue[at] in self._used:
            if not self.view.is_pinned(self._queue[at]):
                self._used.remove(self._queue[at])
            at = (at + 1) % len(self._queue)
        self._hand = self._queue[at]
        return self._hand

    def _leave(self, node: int, heir: int) -> None:
        if node not in self._queue:
            return
        at = self._queue.index(node)
        if heir >= 0 and heir not in self._queue:
            self._queue[at] = heir
        else:
            del self._queue[at]
        if self._hand == node:
            self._hand = self._queue[at] if at < len(self._queue) else None


class State(NamedTuple):
    """9 bytes per known node."""

    queue: Links
    used: NDArray[np.uint8]
    hand: NDArray[np.int32]  # -1: at the tail


def make_state(setting: Setting) -> State:
    return State(make_links(setting.node_count, 1), np.zeros(setting.node_count, np.uint8), np.full(1, -1, np.int32))


@kernel_part
def _leave(state: State, node: int) -> None:
    if state.hand[0] == node:
        state.hand[0] = ahead_of(state.queue, node)
    unlink(state.queue, node)


@kernel_part
def on_hit(cache: Cache, state: State, node: int) -> None:
    state.used[node] = 1


@kernel_part
def on_admit(cache: Cache, state: State, node: int) -> None:
    state.used[node] = 0
    parent = int(cache.parent[node])
    if parent >= 0 and is_linked(state.queue, parent):
        _leave(state, parent)


@kernel_part
def on_release(cache: Cache, state: State, node: int) -> None:
    if cache.children[node] == 0 and not is_linked(state.queue, node):
        push_head(state.queue, 0, node)


@kernel_part
def on_evict(cache: Cache, state: State, node: int) -> None:
    parent = freed_parent(cache, node)
    if parent >= 0 and not is_linked(state.queue, parent):
        take_place(state.queue, parent, node)
        if state.hand[0] == node:
            state.hand[0] = parent
    else:
        _leave(state, node)


@kernel_part
def victim(cache: Cache, state: State, incoming: int) -> int:
    node = int(state.hand[0])
    for _ in range(2 * cache.counts[RESIDENT] + 2):
        if node < 0:
            node = tail(state.queue, 0)
            if node < 0:
                return -1
        if cache.pinned[node] == 0:
            if state.used[node] == 0:
                state.hand[0] = node
                return node
            state.used[node] = 0
        node = ahead_of(state.queue, node)
    return -1


POLICY = EvictionPolicy(
    "sieve",
    Reference,
    EvictionHooks(make_state, victim, on_hit=on_hit, on_admit=on_admit, on_release=on_release, on_evict=on_evict),
)
