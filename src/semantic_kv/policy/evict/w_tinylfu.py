"""W-TinyLFU: a small LRU window in front of a segmented LRU; a block leaving the window stays only if asked for more.

Window 1 % of the capacity, protected 80 % of the rest (as Caffeine starts, without its hill climbing). In a tree the
candidates are the first evictable blocks from the tails. 9 bytes per known node and the sketch, 4 bytes per block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import (
    CAPACITY,
    Cache,
    EvictionHooks,
    EvictionPolicy,
    ReferenceEviction,
    Setting,
    View,
    is_evictable,
    size_of,
)
from semantic_kv.policy.structure.links import Links, ahead_of, make_links, push_head, tail, unlink
from semantic_kv.policy.structure.sketch import Sketch, add_to, count_of, make_sketch
from sembase.compiled import kernel_part

_DEFAULTS = {"window": 0.01, "protected": 0.8}
WINDOW, PROBATION, PROTECTED = range(3)


def _limits(setting: Setting) -> NDArray[np.float64]:
    """What each segment may hold; probation takes what is left."""
    window = max(1.0, setting.options["window"] * setting.capacity)
    return np.array([window, np.inf, setting.options["protected"] * (setting.capacity - window)])


class Reference(ReferenceEviction):
    """Lists with the tail in front; a pinned block is in none but still counts for its segment."""

    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._sketch = make_sketch(setting.capacity)
        self._limits = _limits(setting)
        self._lists: tuple[list[int], ...] = ([], [], [])
        self._segment: dict[int, int] = {}

    def _used(self, segment: int) -> int:
        return sum(self.view.size_of(node) for node, where in self._segment.items() if where == segment)

    def _move(self, node: int, segment: int) -> None:
        if node in self._lists[self._segment[node]]:
            self._lists[self._segment[node]].remove(node)
            self._lists[segment].append(node)
        self._segment[node] = segment

    def on_hit(self, node: int) -> None:
        add_to(self._sketch, node)
        self._lists[self._segment[node]].remove(node)
        if self._segment[node] == PROBATION:
            self._segment[node] = PROTECTED
        while self._used(PROTECTED) > self._limits[PROTECTED] and self._lists[PROTECTED]:
            self._move(self._lists[PROTECTED][0], PROBATION)

    def on_miss(self, node: int) -> None:
        add_to(self._sketch, node)

    def on_admit(self, node: int) -> None:
        self._segment[node] = WINDOW

    def on_release(self, node: int) -> None:
        self._lists[self._segment[node]].append(node)

    def on_evict(self, node: int) -> None:
        self._lists[self._segment.pop(node)].remove(node)

    def after_request(self) -> None:
        main = self.view.capacity - self._limits[WINDOW]
        while self._used(WINDOW) > self._limits[WINDOW] and self._used(PROBATION) + self._used(PROTECTED) < main:
            self._move(self._lists[WINDOW][0], PROBATION)

    def _candidate(self, segment: int) -> int:
        return next((node for node in self._lists[segment] if self.view.is_evictable(node)), -1)

    def victim(self, incoming: int) -> int:
        main = self._candidate(PROBATION)
        main = self._candidate(PROTECTED) if main < 0 else main
        window = self._candidate(WINDOW)
        if main < 0 or window < 0:
            return max(main, window)
        if self._used(WINDOW) < self._limits[WINDOW]:
            return main
        if count_of(self._sketch, window) <= count_of(self._sketch, main):
            return window
        self._move(window, PROBATION)
        return main


class State(NamedTuple):
    links: Links
    sketch: Sketch
    limits: NDArray[np.float64]
    used: NDArray[np.int64]  # by segment, pinned blocks too
    segment: NDArray[np.uint8]


def make_state(setting: Setting) -> State:
    return State(
        make_links(setting.node_count, lists=3),
        make_sketch(setting.capacity),
        _limits(setting),
        np.zeros(3, np.int64),
        np.zeros(setting.node_count, np.uint8),
    )


@kernel_part
def _resegment(cache: Cache, state: State, node: int, segment: int) -> None:
    size = size_of(cache, node)
    state.used[state.segment[node]] -= size
    state.used[segment] += size
    state.segment[node] = segment


@kernel_part
def _put_on_probation(cache: Cache, state: State, node: int) -> None:
    unlink(state.links, node)
    _resegment(cache, state, node, PROBATION)
    push_head(state.links, PROBATION, node)


@kernel_part
def on_hit(cache: Cache, state: State, node: int) -> None:
    add_to(state.sketch, node)
    unlink(state.links, node)
    if state.segment[node] == PROBATION:
        _resegment(cache, state, node, PROTECTED)
    while state.used[PROTECTED] > state.limits[PROTECTED]:
        demoted = tail(state.links, PROTECTED)
        if demoted < 0:
            break
        _put_on_probation(cache, state, demoted)


@kernel_part
def on_miss(cache: Cache, state: State, node: int) -> None:
    add_to(state.sketch, node)


@kernel_part
def on_admit(cache: Cache, state: State, node: int) -> None:
    state.segment[node] = WINDOW
    state.used[WINDOW] += size_of(cache, node)


@kernel_part
def on_release(cache: Cache, state: State, node: int) -> None:
    push_head(state.links, int(state.segment[node]), node)


@kernel_part
def on_evict(cache: Cache, state: State, node: int) -> None:
    unlink(state.links, node)
    state.used[state.segment[node]] -= size_of(cache, node)


@kernel_part
def after_request(cache: Cache, state: State) -> None:
    """Move the excess of the window to probation, without a contest, while the main part of the cache has room."""
    main = cache.counts[CAPACITY] - state.limits[WINDOW]
    while state.used[WINDOW] > state.limits[WINDOW] and state.used[PROBATION] + state.used[PROTECTED] < main:
        leaving = tail(state.links, WINDOW)
        _put_on_probation(cache, state, leaving)


@kernel_part
def _candidate(cache: Cache, state: State, segment: int) -> int:
    node = tail(state.links, segment)
    while node >= 0 and not is_evictable(cache, node):
        node = ahead_of(state.links, node)
    return node


@kernel_part
def victim(cache: Cache, state: State, incoming: int) -> int:
    main = _candidate(cache, state, PROBATION)
    if main < 0:
        main = _candidate(cache, state, PROTECTED)
    window = _candidate(cache, state, WINDOW)
    if main < 0 or window < 0:
        return main if main >= 0 else window
    if state.used[WINDOW] < state.limits[WINDOW]:
        return main
    if count_of(state.sketch, window) <= count_of(state.sketch, main):
        return window
    _put_on_probation(cache, state, window)
    return main


POLICY = EvictionPolicy(
    "w_tinylfu",
    Reference,
    EvictionHooks(
        make_state,
        victim,
        on_hit=on_hit,
        on_miss=on_miss,
        on_admit=on_admit,
        on_release=on_release,
        on_evict=on_evict,
        after_request=after_request,
    ),
    _DEFAULTS,
)
