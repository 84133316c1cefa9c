"""Settings of the service: the simulated cache, the latency model, and the limits on requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from semantic_kv.cache.result import CacheModel, Unit
from sembase.errors import ConfigurationError
from sembase.latency import LatencyModel


@dataclass(frozen=True, slots=True)
class Limits:
    """The first two per request. After that many known blocks or requests the cache restarts empty.

    A known block costs about 200 bytes, so the default history stays below 25 MB.
    """

    body_bytes: int = 4 << 20
    messages: int = 512
    known_blocks: int = 100_000
    known_requests: int = 10_000


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """``capacity`` is in ``unit``. Requests are modelled as served alone."""

    capacity: int = 100_000
    unit: Unit = "tokens"
    model: CacheModel = "prefix_tree"
    evict: str = "lru"
    admit: str = "always"
    latency: LatencyModel = field(default_factory=LatencyModel)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ConfigurationError(f"invalid capacity {self.capacity} {self.unit} (must be at least 1)")
