"""The cache that the service simulates: requests in one by one, hits out. It restarts when its history is full."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from semantic_kv.api.settings import ServiceSettings
from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.result import Replay
from semantic_kv.cache.spec import cache_spec
from sembase.errors import ContractError
from sembase.trace.build import TraceBuilder
from sembase.trace.record import TraceBlock, TraceRecord


@dataclass(frozen=True, slots=True)
class Lookup:
    """The hits of one request. In a prefix tree these are its first blocks."""

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
    """One cache, one lock. An epoch lasts until the history is full or reset; the next starts with an empty cache."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._epoch = 0
        self._result: Replay | None = None
        self._begin()
        # Compiling takes seconds: do it when the service starts, not in the first request.
        self._feed(TraceRecord("warm-up", 0.0, (TraceBlock("other", 1, content_hash="warm-up"),)))
        self._epoch = 0
        self._begin()

    def look_up(self, record: TraceRecord) -> Lookup:
        limits = self._settings.limits
        if len(record.blocks) > limits.known_blocks:
            raise ContractError(f"the prompt has {len(record.blocks):,} blocks; the maximum is {limits.known_blocks:,}")
        with self._lock:
            full = self._builder.node_count + len(record.blocks) > limits.known_blocks
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
            return CacheState(self._epoch, self._requests, self._replay.resident_blocks, self._builder.node_count, used)

    def totals(self) -> tuple[int, Replay | None]:
        """The epoch and its totals so far, which are None before the first request."""
        with self._lock:
            return self._epoch, self._result

    def reset(self) -> int:
        """Returns the number of the new epoch."""
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
        self._builder = TraceBuilder("service")
        self._requests = 0
        self._result = None
        self._epoch += 1

    def _feed(self, record: TraceRecord) -> None:
        self._builder.add(replace(record, timestamp_ms=1000.0 * (time.monotonic() - self._began)))
        self._replay.feed(self._builder.take())
