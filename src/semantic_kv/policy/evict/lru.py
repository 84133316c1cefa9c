"""Evict by (last request, deeper first): what vLLM and SGLang do.

A parent is touched with every child, and the list takes a request's blocks deepest first, so its tail is always a leaf.
"""

from __future__ import annotations

from collections import OrderedDict

from semantic_kv.policy.interface import Cache, EvictionHooks, EvictionPolicy, ReferenceEviction, Setting, View
from semantic_kv.policy.structure.links import Links, make_links, push_head, tail, unlink
from sembase.compiled import kernel_part


class Reference(ReferenceEviction):
    """The evictable block released first; the order of releases stands for (request, deeper first)."""

    def __init__(self, setting: Setting, view: View) -> None:
        super().__init__(setting, view)
        self._released = OrderedDict[int, None]()

    def on_hit(self, node: int) -> None:
        del self._released[node]

    def on_release(self, node: int) -> None:
        self._released[node] = None

    def on_evict(self, node: int) -> None:
        del self._released[node]

    def victim(self, incoming: int) -> int:
        return next(filter(self.view.is_evictable, self._released), -1)


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
