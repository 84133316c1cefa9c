"""How a policy plugs in: a plain-Python class (always), and compiled hooks that decide the same (optional, fast).

One request, in both simulators, block by block:

1. look-up, first block first: every hit block is pinned, then ``on_hit(node)``. Tree: up to the first absent block.
2. every other block, first block first: ``on_miss(node)``, then, while the way is open, admission: a block that needs
   room asks eviction for ``victim(incoming)`` (-1: none) and admission for ``admits(node, victim, ...)``; victims leave
   one by one (``on_evict(victim)``) until it fits; the block becomes resident and pinned, then ``on_admit(node)``.
   Tree: the first block refused closes the way for the rest of the request.
3. release, deepest block first: every resident block of the request is unpinned, then ``on_release(node)``.
4. ``after_request()``.

A victim must be *evictable*: resident, unpinned, without resident children. ``victim`` may age its own lists but must
not forget a block: only ``on_evict`` says that one leaves. A set-model request may name a block twice; ``on_hit``,
``on_admit`` and ``on_release`` then run once.

Compiled hooks are `kernel_part` functions ``hook(cache, state, node)``; `cache` is the `Cache` below and `state` the
NamedTuple of arrays that `make_state` built (arrays whose length follows `setting.node_count` grow with a stream: their
new entries are what `make_state` would have put there; scalars live in arrays of one element). Hooks never allocate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel_part

# positions in `Cache.counts`
REQUEST, USED, CAPACITY, RESIDENT, BY_TOKENS, IS_TREE = range(6)
# positions in `Cache.facts`: what the trace knows of the request being served, -1 where it is unknown
SESSION, FINISH, OUTPUT_TOKENS = range(3)


class Cache(NamedTuple):
    """What the compiled core keeps for every policy: 5 bytes per known node in addition to the trace's own columns."""

    counts: NDArray[np.int64]
    now_ms: NDArray[np.float64]  # one element: arrival of the request being served
    facts: NDArray[np.int64]  # by SESSION ... OUTPUT_TOKENS; the last two become known at its end: use in after_request
    children: NDArray[np.int32]  # resident children of a resident block; -1: not resident
    pinned: NDArray[np.uint8]
    parent: NDArray[np.int32]  # -1 at a root and everywhere in a block set
    tokens: NDArray[np.int32]
    label: NDArray[np.uint8]


@kernel_part
def size_of(cache: Cache, node: int) -> int:
    """What a block takes of the capacity: its tokens, or 1 where the capacity counts blocks."""
    return int(cache.tokens[node]) if cache.counts[BY_TOKENS] else 1


@kernel_part
def is_evictable(cache: Cache, node: int) -> bool:
    return bool(cache.children[node] == 0 and cache.pinned[node] == 0)


@kernel_part
def freed_parent(cache: Cache, evicted: int) -> int:
    """Inside ``on_evict``: the parent that has just lost its last resident child and so became a leaf; else -1."""
    parent = int(cache.parent[evicted])
    return parent if parent >= 0 and cache.children[parent] == 0 else -1


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy is built for. `options` are the policy's defaults with the user's values over them."""

    capacity: int
    by_tokens: bool
    is_tree: bool
    node_count: int
    options: Mapping[str, float]
    seed: int


class View(Protocol):
    """What the reference simulator shows a policy; `parent`, `tokens` and `label` are indexed by node."""

    parent: NDArray[np.int32]
    tokens: NDArray[np.int32]
    label: NDArray[np.uint8]
    request: int
    now_ms: float
    session: int  # the next three: -1 where the trace does not know; the last two are for ``after_request`` only
    finish: int
    output_tokens: int
    used: int
    capacity: int

    def evictable(self) -> Iterator[int]: ...
    def is_evictable(self, node: int) -> bool: ...
    def is_resident(self, node: int) -> bool: ...
    def is_leaf(self, node: int) -> bool: ...
    def is_pinned(self, node: int) -> bool: ...
    def size_of(self, node: int) -> int: ...
    def freed_parent(self, evicted: int) -> int: ...


class ReferenceEviction:
    """Base of plain-Python eviction; `victim` is all that must be written."""

    def __init__(self, setting: Setting, view: View) -> None:
        self.setting = setting
        self.view = view

    def on_hit(self, node: int) -> None: ...
    def on_miss(self, node: int) -> None: ...
    def on_admit(self, node: int) -> None: ...
    def on_release(self, node: int) -> None: ...
    def on_evict(self, node: int) -> None: ...
    def after_request(self) -> None: ...

    def victim(self, incoming: int) -> int:
        """An evictable block, or -1 where there is none."""
        raise NotImplementedError

    def worth(self, node: int) -> float:
        """What the policy would keep this block for (also of a block not resident): compared by score admission."""
        return 0.0

    def weights(self) -> NDArray[np.float64] | None:
        """What the policy learnt, one number a label, for the chart of weights over time."""
        return None


class ReferenceAdmission:
    """Base of plain-Python admission."""

    def __init__(self, setting: Setting, view: View) -> None:
        self.setting = setting
        self.view = view

    def on_hit(self, node: int) -> None: ...
    def on_miss(self, node: int) -> None: ...
    def on_evict(self, node: int) -> None: ...
    def after_request(self) -> None: ...

    def admits(self, node: int, victim: int, worth: float, victim_worth: float) -> bool:
        """`victim` is the block that would leave first, -1 where there is room."""
        raise NotImplementedError


@kernel_part
def no_op(cache: Cache, state: Any, node: int) -> None:
    return


@kernel_part
def no_op_after(cache: Cache, state: Any) -> None:
    return


@kernel_part
def worth_nothing(cache: Cache, state: Any, node: int) -> float:
    return 0.0


Hook = Callable[[Cache, Any, int], None]


@dataclass(frozen=True, slots=True)
class EvictionHooks:
    """The compiled half of an eviction policy."""

    make_state: Callable[[Setting], Any]
    victim: Callable[[Cache, Any, int], int]
    on_hit: Hook = no_op
    on_miss: Hook = no_op
    on_admit: Hook = no_op
    on_release: Hook = no_op
    on_evict: Hook = no_op
    after_request: Callable[[Cache, Any], None] = no_op_after
    worth: Callable[[Cache, Any, int], float] = worth_nothing
    weights: Callable[[Any], NDArray[np.float64]] | None = None  # plain Python: state -> one number a label


@dataclass(frozen=True, slots=True)
class AdmissionHooks:
    """The compiled half of an admission policy: ``admits(cache, state, node, victim, worth, victim_worth)``."""

    make_state: Callable[[Setting], Any]
    admits: Callable[[Cache, Any, int, int, float, float], bool]
    on_hit: Hook = no_op
    on_miss: Hook = no_op
    on_evict: Hook = no_op
    after_request: Callable[[Cache, Any], None] = no_op_after


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """What the registry holds. Without `hooks` the policy runs in the reference simulator only."""

    name: str
    reference: Callable[[Setting, View], ReferenceEviction]
    hooks: EvictionHooks | None = None
    defaults: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    name: str
    reference: Callable[[Setting, View], ReferenceAdmission]
    hooks: AdmissionHooks | None = None
    defaults: Mapping[str, float] = field(default_factory=dict)
