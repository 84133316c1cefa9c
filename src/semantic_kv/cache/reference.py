"""The plain-Python cache: the oracle of the compiled core, and where reuse beyond the prefix is simulated.

A policy without compiled hooks runs here too. Written from the definitions, not from the core: dictionaries and sets,
a scan where the core keeps an order.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from semantic_kv.cache.blending import Blending
from semantic_kv.cache.result import BlendTotals, Replay
from semantic_kv.cache.spec import CacheSpec
from semantic_kv.cache.timeline import Timeline
from sembase.labels import LABELS
from sembase.trace.columns import BlockTrace


class ReferenceCache:
    """Resident blocks, their resident children and the pins: what a policy is shown (`policy.interface.View`)."""

    def __init__(self, spec: CacheSpec, trace: BlockTrace) -> None:
        self.parent = np.full(trace.node_count, -1, np.int32) if trace.parent is None else trace.parent
        self.tokens = trace.node_tokens
        self.label = trace.node_label
        self.request = 0
        self.now_ms = 0.0
        self.session = self.finish = self.output_tokens = -1
        self.used = 0
        self.capacity = spec.capacity
        self.pins: set[int] = set()  # blocks of the request being served
        self.holds: Counter[int] = Counter()  # blocks that repairs hold
        self._by_tokens = spec.unit == "tokens"
        self._children: dict[int, set[int]] = {}

    def is_resident(self, node: int) -> bool:
        return node in self._children

    def is_leaf(self, node: int) -> bool:
        return node in self._children and not self._children[node]

    def is_pinned(self, node: int) -> bool:
        return node in self.pins or self.holds[node] > 0

    def is_evictable(self, node: int) -> bool:
        return self.is_leaf(node) and not self.is_pinned(node)

    def evictable(self) -> Iterator[int]:
        return (node for node in self._children if self.is_evictable(node))

    def size_of(self, node: int) -> int:
        return int(self.tokens[node]) if self._by_tokens else 1

    def freed_parent(self, evicted: int) -> int:
        parent = int(self.parent[evicted])
        return parent if parent >= 0 and self.is_leaf(parent) else -1

    def insert(self, node: int) -> None:
        self._children[node] = set()
        self.used += self.size_of(node)
        if self.parent[node] >= 0:
            self._children[int(self.parent[node])].add(node)

    def remove(self, node: int) -> None:
        assert self.is_evictable(node), f"the policy chose block {node}, which is pinned, inner or absent"
        del self._children[node]
        self.used -= self.size_of(node)
        if self.parent[node] >= 0:
            self._children[int(self.parent[node])].remove(node)


class ReferenceReplay:
    """The same requests, decisions and result as `CompiledReplay`, one trace at a time."""

    def __init__(self, spec: CacheSpec, trace: BlockTrace) -> None:
        self.spec = spec
        self.trace = spec.columns_of(trace)
        self.cache = ReferenceCache(spec, self.trace)
        nodes = self.trace.node_count
        self.evict = spec.evict.reference(spec.setting(spec.evict_options, nodes), self.cache)
        self.admit = spec.admit.reference(spec.setting(spec.admit_options, nodes), self.cache)
        self.journal: list[int] = []
        self.blend = Blending(spec.reuse, self.trace, _Blocks(self)) if spec.reuse.is_beyond_prefix else None
        self._admitted = self._refused = self._evicted = 0
        self._labels = {kind: Counter[int]() for kind in ("hits", "evictions")}

    def run(self, progress: Callable[[int], None] | None = None) -> Replay:
        trace, timeline = self.trace, Timeline()
        timeline.expect(trace.request_count)
        hit_blocks = np.zeros(trace.request_count, np.int32)
        hit_tokens = np.zeros(trace.request_count, np.int32)
        reused_tokens = np.zeros(trace.request_count, np.int32)
        began = time.perf_counter()
        for request in range(trace.request_count):
            row = trace.nodes[trace.offsets[request] : trace.offsets[request + 1]].tolist()
            hits, reused_tokens[request] = self._serve(request, row)
            hit_blocks[request] = len(hits)
            hit_tokens[request] = self.cache.tokens[hits].sum()
            if (request + 1) % timeline.stride == 0:
                timeline.add(request + 1, self.cache.used, self.evict.weights())
            if progress is not None:
                progress(1)
        return self._result(hit_blocks, hit_tokens, reused_tokens, timeline, time.perf_counter() - began)

    def _serve(self, request: int, row: list[int]) -> tuple[list[int], int]:
        self.cache.request = request
        self.cache.now_ms = float(self.trace.arrival_ms[request])
        self.cache.session = int(self.trace.session[request])
        self.cache.finish = int(self.trace.finish[request])
        self.cache.output_tokens = int(self.trace.output_tokens[request])
        if self.blend is not None:
            self.blend.arrived(row, self.cache.now_ms)
        hits = self._look_up(row)
        reused = 0 if self.blend is None else self.blend.plan(row, len(hits))
        private: int | None = 0
        if reused:
            private = self._take_private(row[len(hits) :])
        else:
            self._take_in(row)
        if self.blend is not None:
            known = (self.cache.finish + 1, self.cache.output_tokens, self.cache.now_ms)
            self.blend.served(row, len(hits), reused, private, *known)
        for node in reversed(row):
            if node in self.cache.pins:
                self.cache.pins.remove(node)
                if not self.cache.is_pinned(node):
                    self.evict.on_release(node)
        self.evict.after_request()
        self.admit.after_request()
        return hits, reused

    def _look_up(self, row: list[int]) -> list[int]:
        hits = []
        for node in row:
            if not self.cache.is_resident(node):
                if self.spec.model == "prefix_tree":
                    break
                continue
            hits.append(node)
            self._labels["hits"][int(self.cache.label[node])] += 1
            is_free = not self.cache.is_pinned(node)
            self.cache.pins.add(node)
            if is_free:
                self.evict.on_hit(node)
                self.admit.on_hit(node)
        return hits

    def _take_in(self, row: list[int]) -> None:
        is_open = True
        for node in row:
            if self.cache.is_resident(node):
                continue
            self.evict.on_miss(node)
            self.admit.on_miss(node)
            if is_open and self._enter(node):
                self._admitted += 1
                self.journal.append(node)
                self.evict.on_admit(node)
            else:
                self._refused += 1
                is_open = self.spec.model == "block_set"

    def _enter(self, node: int) -> bool:
        room = self.cache.capacity - self.cache.size_of(node)
        if room < 0:
            return False
        victim = self._victim(node, room)
        if victim < 0 and self.cache.used > room:
            return False
        victim_worth = self.evict.worth(victim) if victim >= 0 else 0.0
        if not self.admit.admits(node, victim, self.evict.worth(node), victim_worth):
            return False
        while self.cache.used > room:
            if victim < 0:
                return False
            self._expel(victim)
            victim = self._victim(node, room)
        self.cache.insert(node)
        self.cache.pins.add(node)
        return True

    def _victim(self, incoming: int, room: int) -> int:
        """What leaves next, -1 if nothing has to or nothing can. Repairs give their blocks back before that."""
        victim = self.evict.victim(incoming) if self.cache.used > room else -1
        if victim < 0 and self.cache.used > room and self.blend is not None and self.blend.stop():
            return self._victim(incoming, room)
        return victim

    def _take_private(self, missed: list[int]) -> int | None:
        """The size of a blended request's own blocks, None if there is no room for all of them."""
        private: int | None = 0
        taken = 0
        for node in missed:
            self.evict.on_miss(node)
            self.admit.on_miss(node)
            self._refused += 1
            room = self.cache.capacity - self.cache.size_of(node)
            while private is not None and self.cache.used > room:
                victim = self._victim(node, room)
                if victim >= 0:
                    self._expel(victim)
                elif self.cache.used > room:
                    private = None
            if private is not None:
                self.cache.used += self.cache.size_of(node)
                taken = private = private + self.cache.size_of(node)
        if private is None:
            self.cache.used -= taken
        return private

    def _expel(self, node: int) -> None:
        self.cache.remove(node)
        self._evicted += 1
        self._labels["evictions"][int(self.cache.label[node])] += 1
        self.journal.append(~node)
        self.evict.on_evict(node)
        self.admit.on_evict(node)

    def _result(
        self,
        hit_blocks: NDArray[np.int32],
        hit_tokens: NDArray[np.int32],
        reused_tokens: NDArray[np.int32],
        timeline: Timeline,
        seconds: float,
    ) -> Replay:
        return Replay(
            trace=self.trace.name,
            model=self.spec.model,
            admit=self.spec.admit.name,
            evict=self.spec.evict.name,
            capacity=self.spec.capacity,
            unit=self.spec.unit,
            references=self.trace.reference_count,
            hit_blocks=int(hit_blocks.sum()),
            prompt_tokens=int(self.cache.tokens[self.trace.nodes].sum(dtype=np.int64)),
            hit_tokens=int(hit_tokens.sum(dtype=np.int64)),
            admitted=self._admitted,
            refused=self._refused,
            evicted=self._evicted,
            per_request_hit_blocks=hit_blocks,
            per_request_hit_tokens=hit_tokens,
            per_request_reused_tokens=reused_tokens,
            blended=BlendTotals() if self.blend is None else self.blend.totals(),
            references_by_label=np.bincount(self.cache.label[self.trace.nodes], minlength=len(LABELS)),
            hits_by_label=self._by_label("hits"),
            evictions_by_label=self._by_label("evictions"),
            used_over_time=timeline.used(),
            weights_over_time=timeline.weights(),
            seconds=seconds,
        )

    def _by_label(self, kind: str) -> NDArray[np.int64]:
        return np.array([self._labels[kind][label] for label in range(len(LABELS))], np.int64)


class _Blocks:
    """The cache as repairs use it."""

    def __init__(self, replay: ReferenceReplay) -> None:
        self._replay = replay
        self.capacity = replay.cache.capacity

    @property
    def used(self) -> int:
        return self._replay.cache.used

    @used.setter
    def used(self, used: int) -> None:
        self._replay.cache.used = used

    def size_of(self, node: int) -> int:
        return self._replay.cache.size_of(node)

    def hold(self, node: int) -> None:
        self._replay.cache.holds[node] += 1

    def let_go(self, node: int) -> None:
        self._replay.cache.holds[node] -= 1
        if not self._replay.cache.is_pinned(node):
            self._replay.evict.on_release(node)

    def publish(self, node: int) -> None:
        """A private block becomes an exact one, which the repair holds."""
        replay = self._replay
        if not replay.cache.is_resident(node):
            replay.cache.insert(node)
            replay.cache.holds[node] += 1
            replay.journal.append(node)
            replay.evict.on_admit(node)
            if replay.blend is not None:
                replay.blend.published += 1
            return
        is_free = not replay.cache.is_pinned(node)
        replay.cache.holds[node] += 1
        if is_free:
            replay.evict.on_hit(node)
            replay.admit.on_hit(node)
