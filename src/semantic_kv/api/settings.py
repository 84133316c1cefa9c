"""Settings of the service: the simulated cache, the latency model, and the limits on requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from semantic_kv.cache.result import CacheModel, Unit
from sembase.errors import ConfigurationError
from sembase.latency import Engine, LatencyModel


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits per request, except the last two: after that many known blocks or requests the cache restarts empty.

    A known block costs about 200 bytes, so the default history stays below 25 MB.
    """

    body_bytes: int = 4 << 20
    messages: int = 512
    trace_requests: int = 2_000
    trace_blocks: int = 50_000
    policies: int = 8
    jobs: int = 2
    known_blocks: int = 100_000
    requests_per_epoch: int = 10_000


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """``capacity`` is in ``unit``. ``engine`` is only reported to clients: requests are modelled as served alone."""

    capacity: int = 100_000
    unit: Unit = "tokens"
    model: CacheModel = "prefix_tree"
    evict: str = "lru"
    admit: str = "always"
    latency: LatencyModel = field(default_factory=LatencyModel)
    engine: Engine | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ConfigurationError(f"invalid capacity {self.capacity} {self.unit} (must be at least 1)")
