"""The simulated cache behind the service: requests one by one in, hits out. It begins anew when its history is full."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np

from semantic_kv.api.settings import ServiceSettings
from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.result import Replay
from semantic_kv.cache.spec import cache_spec
from sembase.errors import ContractError
from sembase.labels import label_index
from sembase.trace.build import Names, content_key
from sembase.trace.columns import TreeInterner, block_trace
from sembase.trace.record import TraceBlock, TraceRecord


@dataclass(frozen=True, slots=True)
class Lookup:
    """What one request found. In a prefix tree the hits are the request's first blocks."""

    epoch: int
    hit_blocks: int
    hit_tokens: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class CacheState:
    epoch: int
    requests: int
    resident_blocks: int
    known_blocks: int
    used: int


class LiveCache:
    """One cache, one lock. An epoch is the life of one history; the next one starts with an empty cache."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._epoch = 0
        self._result: Replay | None = None
        self._begin()
        # Compiling takes seconds: at the start of the service, not in its first caller's request.
        self._feed(TraceRecord("warm-up", 0.0, (TraceBlock("other", 1, content_hash="warm-up"),)))
        self._epoch = 0
        self._begin()

    def look_up(self, record: TraceRecord) -> Lookup:
        limits = self._settings.limits
        if len(record.blocks) > limits.known_blocks:
            raise ContractError(
                f"the prompt has {len(record.blocks):,} blocks; at most {limits.known_blocks:,} are taken"
            )
        with self._lock:
            full = self._interner.node_count + len(record.blocks) > limits.known_blocks
            if full or self._requests >= limits.requests_per_epoch:
                self._begin()
            before = self._result
            self._feed(record)
            after = self._result = self._replay.result()
            self._requests += 1
            return Lookup(
                epoch=self._epoch,
                hit_blocks=after.hit_blocks - (before.hit_blocks if before else 0),
                hit_tokens=after.hit_tokens - (before.hit_tokens if before else 0),
                prompt_tokens=record.prompt_tokens,
            )

    def state(self) -> CacheState:
        with self._lock:
            used = 0 if self._result is None else int(self._result.used_over_time[-1, 1])
            return CacheState(
                self._epoch, self._requests, self._replay.resident_blocks, self._interner.node_count, used
            )

    def totals(self) -> tuple[int, Replay | None]:
        """The epoch and its totals so far; None before its first request."""
        with self._lock:
            return self._epoch, self._result

    def reset(self) -> int:
        """The number of the epoch that begins."""
        with self._lock:
            self._begin()
            return self._epoch

    def _begin(self) -> None:
        settings = self._settings
        spec = cache_spec(
            capacity=settings.capacity,
            admit=settings.admit,
            evict=settings.evict,
            model=settings.model,
            unit=settings.unit,
        )
        self._replay = CompiledReplay(spec)
        self._interner = TreeInterner()
        self._contents, self._tenants = Names(), Names()
        self._requests = 0
        self._result = None
        self._epoch += 1

    def _feed(self, record: TraceRecord) -> None:
        tenant = self._tenants.id_of(record.tenant_id)
        keys = np.array([self._contents.id_of(content_key(block)) for block in record.blocks], np.int64)
        tokens = np.array([block.token_count for block in record.blocks], np.int32)
        labels = np.array([label_index(block.semantic_type) for block in record.blocks], np.uint8)
        nodes = self._interner.add(tenant, keys, tokens, labels)
        offsets = np.array([0, nodes.size], np.int64)
        arrival_ms = np.array([1000.0 * (time.monotonic() - self._began)])
        self._replay.feed(block_trace("service", offsets, nodes, self._interner, arrival_ms=arrival_ms))
