"""The compiled cache over a stream of trace chunks: feed them in order, ask for the result at any time.

Memory: 5 bytes per known node and what the policies add, 8 bytes per request for the per-request columns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from semantic_kv.cache import loop
from semantic_kv.cache.loop import Tally
from semantic_kv.cache.result import BlendTotals, Replay
from semantic_kv.cache.spec import CacheSpec
from semantic_kv.cache.timeline import Timeline
from semantic_kv.policy.interface import BY_TOKENS, CAPACITY, IS_TREE, REQUEST, RESIDENT, Cache
from sembase.errors import ConfigurationError, ContractError
from sembase.labels import LABELS
from sembase.trace.columns import BlockTrace

Scalar = TypeVar("Scalar", bound=np.generic)


class CompiledReplay:
    """One cache. Chunks of one stream share node ids; the node columns of a later chunk may only be longer.

    `per_request` False leaves the per-request columns of the result empty: memory then does not grow with requests.
    """

    def __init__(self, spec: CacheSpec, *, journal_entries: int = 0, per_request: bool = True) -> None:
        if spec.evict.hooks is None or spec.admit.hooks is None:
            plain = spec.evict.name if spec.evict.hooks is None else spec.admit.name
            raise ConfigurationError(f"policy '{plain}' is plain Python only: run it with reference=True")
        if spec.reuse.is_beyond_prefix:
            raise ConfigurationError(f"reuse '{spec.reuse.name}' is plain Python only: run it with reference=True")
        self.spec = spec
        self._evict_hooks, self._admit_hooks = spec.evict.hooks, spec.admit.hooks
        self._loop = loop.specialise(spec.evict.name, self._evict_hooks, spec.admit.name, self._admit_hooks)
        self._counts = np.zeros(6, np.int64)
        self._counts[[CAPACITY, BY_TOKENS, IS_TREE]] = (
            spec.capacity,
            spec.unit == "tokens",
            spec.model == "prefix_tree",
        )
        self._now_ms = np.zeros(1, np.float64)
        self._facts = np.full(3, -1, np.int64)
        self._children = np.empty(0, np.int32)
        self._pinned = np.empty(0, np.uint8)
        self._evict: Any = None
        self._admit: Any = None
        journal = np.empty(journal_entries, np.int32)
        self._tally = Tally(np.zeros(8, np.int64), np.zeros((3, len(LABELS)), np.int64), journal)
        self._timeline = Timeline()
        self._hit_blocks: list[NDArray[np.int32]] = []
        self._hit_tokens: list[NDArray[np.int32]] = []
        self._per_request = per_request
        self._trace_name = ""
        self._seconds = 0.0

    @property
    def resident_blocks(self) -> int:
        return int(self._counts[RESIDENT])

    @property
    def journal(self) -> NDArray[np.int32]:
        """Every admission as node, every eviction as ~node, in order, as far as `journal_entries` reached."""
        return self._tally.journal[: self._tally.totals[loop.JOURNALLED]]

    def state_bytes(self) -> int:
        """Memory of the cache and its policies, without the trace."""
        return self._children.nbytes + self._pinned.nbytes + _bytes(self._evict) + _bytes(self._admit)

    def feed(self, chunk: BlockTrace, progress: Callable[[int], None] | None = None) -> None:
        """Serve the requests of one chunk. `progress` gets the number of requests served since its last call."""
        trace = self.spec.columns_of(chunk)
        self._grow(trace.node_count)
        self._trace_name = trace.name
        cache = self._cache(trace)
        offsets, nodes, arrival_ms = _own(trace.offsets), _own(trace.nodes), _own(trace.arrival_ms)
        facts = np.stack([trace.session, trace.finish, trace.output_tokens], axis=1).astype(np.int64)
        hit_blocks = np.zeros(trace.request_count, np.int32)
        hit_tokens = np.zeros(trace.request_count, np.int32)
        used = np.zeros(trace.request_count, np.int64)
        self._timeline.expect(trace.request_count)

        def serve(start: int, stop: int) -> None:
            rows = slice(start, stop)
            self._loop(
                offsets[start : stop + 1],
                nodes,
                arrival_ms[rows],
                facts[rows],
                cache,
                self._evict,
                self._admit,
                self._tally,
                hit_blocks[rows],
                hit_tokens[rows],
                used[rows],
            )

        serve(0, 0)  # compiles, or loads what an earlier process compiled, before the clock starts
        start = 0
        began = time.perf_counter()
        while start < trace.request_count:
            stop = min(trace.request_count, start + self._step(trace.request_count, progress is not None))
            serve(start, stop)
            self._sample(used[start:stop])
            if progress is not None:
                progress(stop - start)
            start = stop
        self._seconds += time.perf_counter() - began
        if self._per_request:
            self._hit_blocks.append(hit_blocks)
            self._hit_tokens.append(hit_tokens)

    def _step(self, requests: int, is_watched: bool) -> int:
        """Entering compiled code costs about a millisecond, so it is entered only when a sample or progress is due."""
        if self._evict_hooks.weights is not None:
            return self._timeline.stride
        return -(-requests // 20) if is_watched else requests

    def _sample(self, used: NDArray[np.int64]) -> None:
        served = int(self._counts[REQUEST]) - len(used)
        if self._evict_hooks.weights is not None:
            if len(used) == self._timeline.stride:
                self._timeline.add(served + len(used), int(used[-1]), self._evict_hooks.weights(self._evict))
            return
        at = self._timeline.stride - 1
        while at < len(used):
            self._timeline.add(served + at + 1, int(used[at]), None)
            at += self._timeline.stride

    def result(self) -> Replay:
        totals = [int(total) for total in self._tally.totals]
        by_label = self._tally.by_label.copy()
        hit_blocks = _joined(self._hit_blocks)
        return Replay(
            trace=self._trace_name,
            model=self.spec.model,
            admit=self.spec.admit.name,
            evict=self.spec.evict.name,
            capacity=self.spec.capacity,
            unit=self.spec.unit,
            references=totals[loop.REFERENCES],
            hit_blocks=totals[loop.HIT_BLOCKS],
            prompt_tokens=totals[loop.PROMPT_TOKENS],
            hit_tokens=totals[loop.HIT_TOKENS],
            admitted=totals[loop.ADMITTED],
            refused=totals[loop.REFUSED],
            evicted=totals[loop.EVICTED],
            per_request_hit_blocks=hit_blocks,
            per_request_hit_tokens=_joined(self._hit_tokens),
            per_request_reused_tokens=np.zeros_like(hit_blocks),
            blended=BlendTotals(),
            references_by_label=by_label[loop.LABEL_REFERENCES],
            hits_by_label=by_label[loop.LABEL_HITS],
            evictions_by_label=by_label[loop.LABEL_EVICTIONS],
            used_over_time=self._timeline.used(),
            weights_over_time=self._timeline.weights(),
            seconds=self._seconds,
        )

    def _cache(self, trace: BlockTrace) -> Cache:
        parent = np.full(trace.node_count, -1, np.int32) if trace.parent is None else trace.parent
        return Cache(
            self._counts,
            self._now_ms,
            self._facts,
            self._children,
            self._pinned,
            _own(parent),
            _own(trace.node_tokens),
            _own(trace.node_label),
        )

    def _grow(self, node_count: int) -> None:
        known = len(self._children)
        if self._evict is not None and node_count <= known:
            return
        room = node_count if self._evict is None else max(node_count, known + known // 2)
        if room > np.iinfo(np.int32).max // 2:
            raise ContractError("a trace has more than 2^30 distinct blocks; split it or sample it (SHARDS)")
        spec = self.spec
        self._children = _extended(self._children, np.full(room, -1, np.int32))
        self._pinned = _extended(self._pinned, np.zeros(room, np.uint8))
        self._evict = _extended(self._evict, self._evict_hooks.make_state(spec.setting(spec.evict_options, room)))
        self._admit = _extended(self._admit, self._admit_hooks.make_state(spec.setting(spec.admit_options, room)))


def _extended(old: Any, new: Any) -> Any:
    """`new` with everything `old` holds copied over its beginning; tuples of arrays, however nested."""
    if old is None:
        return new
    if isinstance(new, np.ndarray):
        new[tuple(slice(size) for size in old.shape)] = old
        return new
    return type(new)(*(_extended(before, after) for before, after in zip(old, new, strict=True)))


def _own(column: NDArray[Scalar]) -> NDArray[Scalar]:
    """Contiguous and writable, as the loop was compiled for; a column of a mapped file is neither."""
    return np.require(column, requirements=["C", "W"])


def _bytes(state: Any) -> int:
    if isinstance(state, np.ndarray):
        return state.nbytes
    return 0 if state is None else sum(_bytes(part) for part in state)


def _joined(chunks: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate(chunks) if chunks else np.empty(0, np.int32)
