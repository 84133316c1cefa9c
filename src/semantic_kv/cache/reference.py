"""The plain-Python cache: the oracle of the compiled core, and where a policy without compiled hooks runs.

Written from the definitions, not from the core: dictionaries and sets, a scan where the core keeps an order.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from semantic_kv.cache.result import Replay
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
        self.used = 0
        self.capacity = spec.capacity
        self.pins: set[int] = set()
        self._by_tokens = spec.unit == "tokens"
        self._children: dict[int, set[int]] = {}

    def is_resident(self, node: int) -> bool:
        return node in self._children

    def is_leaf(self, node: int) -> bool:
        return node in self._children and not self._children[node]

    def is_pinned(self, node: int) -> bool:
        return node in self.pins

    def is_evictable(self, node: int) -> bool:
        return self.is_leaf(node) and node not in self.pins

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
        self.pins.add(node)
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
        self._admitted = self._refused = self._evicted = 0
        self._labels = {kind: Counter[int]() for kind in ("references", "hits", "evictions")}

    def run(self, progress: Callable[[int], None] | None = None) -> Replay:
        trace, timeline = self.trace, Timeline()
        timeline.expect(trace.request_count)
        hit_blocks = np.zeros(trace.request_count, np.int32)
        hit_tokens = np.zeros(trace.request_count, np.int32)
        began = time.perf_counter()
        for request in range(trace.request_count):
            row = [int(node) for node in trace.nodes[trace.offsets[request] : trace.offsets[request + 1]]]
            hits = self._serve(request, row)
            hit_blocks[request] = len(hits)
            hit_tokens[request] = sum(int(self.cache.tokens[node]) for node in hits)
            if (request + 1) % timeline.stride == 0:
                timeline.add(request + 1, self.cache.used, self.evict.weights())
            if progress is not None:
                progress(1)
        return self._result(hit_blocks, hit_tokens, timeline, time.perf_counter() - began)

    def _serve(self, request: int, row: list[int]) -> list[int]:
        self.cache.request = request
        self.cache.now_ms = float(self.trace.arrival_ms[request])
        hits = self._look_up(row)
        self._take_in(row)
        for node in reversed(row):
            self._labels["references"][int(self.cache.label[node])] += 1
            if node in self.cache.pins:
                self.cache.pins.remove(node)
                self.evict.on_release(node)
        self.evict.after_request()
        self.admit.after_request()
        return hits

    def _look_up(self, row: list[int]) -> list[int]:
        hits = []
        for node in row:
            if not self.cache.is_resident(node):
                if self.spec.model == "prefix_tree":
                    break
                continue
            hits.append(node)
            self._labels["hits"][int(self.cache.label[node])] += 1
            if node not in self.cache.pins:
                self.cache.pins.add(node)
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
        victim = self.evict.victim(node) if self.cache.used > room else -1
        if victim < 0 and self.cache.used > room:
            return False
        victim_worth = self.evict.worth(victim) if victim >= 0 else 0.0
        if not self.admit.admits(node, victim, self.evict.worth(node), victim_worth):
            return False
        while self.cache.used > room:
            if victim < 0:
                return False
            self._expel(victim)
            victim = self.evict.victim(node) if self.cache.used > room else -1
        self.cache.insert(node)
        return True

    def _expel(self, node: int) -> None:
        self.cache.remove(node)
        self._evicted += 1
        self._labels["evictions"][int(self.cache.label[node])] += 1
        self.journal.append(~node)
        self.evict.on_evict(node)
        self.admit.on_evict(node)

    def _result(
        self, hit_blocks: NDArray[np.int32], hit_tokens: NDArray[np.int32], timeline: Timeline, seconds: float
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
            prompt_tokens=sum(int(self.cache.tokens[node]) for node in self.trace.nodes),
            hit_tokens=int(hit_tokens.sum(dtype=np.int64)),
            admitted=self._admitted,
            refused=self._refused,
            evicted=self._evicted,
            per_request_hit_blocks=hit_blocks,
            per_request_hit_tokens=hit_tokens,
            references_by_label=self._by_label("references"),
            hits_by_label=self._by_label("hits"),
            evictions_by_label=self._by_label("evictions"),
            used_over_time=timeline.used(),
            weights_over_time=timeline.weights(),
            seconds=seconds,
        )

    def _by_label(self, kind: str) -> NDArray[np.int64]:
        return np.array([self._labels[kind][label] for label in range(len(LABELS))], np.int64)
