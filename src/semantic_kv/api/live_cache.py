"""The cache that the service simulates: requests in one by one, hits out. It restarts when its history is full."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace

from semantic_kv.api.settings import ServiceSettings
from semantic_kv.cache.replay import CompiledReplay
from semantic_kv.cache.spec import cache_spec
from sembase.errors import ContractError
from sembase.trace.build import TraceBuilder
from sembase.trace.record import TraceBlock, TraceRecord


@dataclass(frozen=True, slots=True)
class Lookup:
    """The hits of one request. In a prefix tree these are its first blocks."""

    hit_blocks: int
    hit_tokens: int


class LiveCache:
    """One cache, one lock. A full history is forgotten, and the cache with it, so that memory stays bounded."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._restart()
        # Compiling takes seconds: do it when the service starts, not in the first request.
        self._feed(TraceRecord("warm-up", 0.0, (TraceBlock("other", 1, content_hash="warm-up"),)))
        self._restart()

    def look_up(self, record: TraceRecord) -> Lookup:
        limits = self._settings.limits
        if len(record.blocks) > limits.known_blocks:
            raise ContractError(f"the prompt has {len(record.blocks):,} blocks; the maximum is {limits.known_blocks:,}")
        with self._lock:
            full = self._builder.node_count + len(record.blocks) > limits.known_blocks
            if full or self._requests >= limits.known_requests:
                self._restart()
            return self._feed(record)

    def _restart(self) -> None:
        settings = self._settings
        spec = cache_spec(
            capacity=settings.capacity,
            admit=settings.admit,
            evict=settings.evict,
            model=settings.model,
            unit=settings.unit,
        )
        self._replay = CompiledReplay(spec, per_request=False)
        self._builder = TraceBuilder("service")
        self._requests = self._hit_blocks = self._hit_tokens = 0

    def _feed(self, record: TraceRecord) -> Lookup:
        self._builder.add(replace(record, timestamp_ms=1000.0 * (time.monotonic() - self._began)))
        self._replay.feed(self._builder.take())
        after = self._replay.result()
        found = Lookup(after.hit_blocks - self._hit_blocks, after.hit_tokens - self._hit_tokens)
        self._requests, self._hit_blocks, self._hit_tokens = self._requests + 1, after.hit_blocks, after.hit_tokens
        return found
