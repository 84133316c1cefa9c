"""Evict by (last request, deeper first): what vLLM and SGLang do.

A parent is touched with every child, and the list takes a request's blocks deepest first, so its tail is always a leaf.
"""

from __future__ import annotations

from semantic_kv.policy.interface import Cache, EvictionHooks, EvictionPolicy, ReferenceEviction, Setting, View
from semantic_kv.policy.structure.links import Links, make_links, push_head, tail, unlink
from sembase.compiled import kernel_part


class Reference(ReferenceEviction):
    """Brute force over the definition; the order of releases stands for (request, deeper first)."""

    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._released: dict[int, int] = {}
        self._clock = 0

    def on_release(self, node: int) -> None:
        self._clock += 1
        self._released[node] = self._clock

    def victim(self, incoming: int) -> int:
        return min(self.view.evictable(), key=self._released.__getitem__, default=-1)


def make_state(setting: Setting) -> Links:
    return make_links(setting.node_count, lists=1)


@kernel_part
def on_hit(cache: Cache, state: Links, node: int) -> None:
    unlink(state, node)  # pinned blocks are in no list


@kernel_part
def on_release(cache: Cache, state: Links, node: int) -> None:
    push_head(state, 0, node)


@kernel_part
def on_evict(cache: Cache, state: Links, node: int) -> None:
    unlink(state, node)


@kernel_part
def victim(cache: Cache, state: Links, incoming: int) -> int:
    return tail(state, 0)


POLICY = EvictionPolicy(
    "lru", Reference, EvictionHooks(make_state, victim, on_hit=on_hit, on_release=on_release, on_evict=on_evict)
)
