"""What a service is started with: the cache it simulates, the latency model, and the bounds on what callers may ask."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sembase.errors import ConfigurationError
from sembase.latency import Engine, LatencyModel


@dataclass(frozen=True, slots=True)
class Limits:
    """Per request, except the last two: a cache's memory of blocks and requests, after which it begins anew.

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
    """``capacity`` counts ``unit``. ``engine`` is only told to callers: the service models requests as served alone."""

    capacity: int = 100_000
    unit: Literal["blocks", "tokens"] = "tokens"
    model: Literal["prefix_tree", "block_set"] = "prefix_tree"
    evict: str = "lru"
    admit: str = "always"
    latency: LatencyModel = field(default_factory=LatencyModel)
    engine: Engine | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ConfigurationError(f"the simulated cache holds {self.capacity} {self.unit}; give it at least one")
