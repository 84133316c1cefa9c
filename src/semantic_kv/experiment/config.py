"""The configuration of a study: traces, policies and capacities, as values. ``config_file`` reads it from YAML."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from semantic_kv.cache.result import CACHE_MODELS, CacheModel, Unit
from semantic_kv.policy.reuse import ReuseName
from sembase.latency import LatencyModel

Scalar = str | int | float | bool
BASELINE: Final = "lru"
ALWAYS: Final = "always"


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """One admission and one eviction policy, each with options that override its defaults, and a reuse policy."""

    evict: str
    admit: str = ALWAYS
    evict_options: tuple[tuple[str, float], ...] = ()
    admit_options: tuple[tuple[str, float], ...] = ()
    reuse: ReuseName = "prefix"

    @property
    def name(self) -> str:
        evict = _with_options(self.evict, self.evict_options)
        pair = evict if self.admit == ALWAYS else f"{evict}+{_with_options(self.admit, self.admit_options)}"
        return pair if self.reuse == "prefix" else f"{pair}/{self.reuse}"

    def options(self) -> dict[str, dict[str, float]]:
        return {"evict": dict(self.evict_options), "admit": dict(self.admit_options)}


@dataclass(frozen=True, slots=True)
class WorkloadSource:
    """A generator: every seed of the study gives another trace of the same kind. None means as published. The sessions
    are distributed over ``tenants``, who share nothing."""

    workload: str
    sessions: int | None = None
    requests_per_session: int | None = None
    tenants: int = 1


@dataclass(frozen=True, slots=True)
class FileSource:
    """A recorded trace, the same for every seed."""

    path: str
    format: str | None = None
    most_requests: int | None = None
    options: tuple[tuple[str, Scalar], ...] = ()


@dataclass(frozen=True, slots=True)
class Ablation:
    """Every admission policy with every eviction policy."""

    admit: tuple[str, ...]
    evict: tuple[str, ...]

    def pairs(self) -> tuple[PolicyChoice, ...]:
        return tuple(PolicyChoice(evict, admit) for evict in self.evict for admit in self.admit)


@dataclass(frozen=True, slots=True)
class CurvePlan:
    """Hit ratio over capacity: exact, and from ``draws`` samples of each rate."""

    policies: tuple[PolicyChoice, ...]
    capacities: tuple[int, ...]
    sample_rates: tuple[float, ...] = ()
    draws: int = 3
    model: CacheModel = "prefix_tree"


@dataclass(frozen=True, slots=True)
class Published:
    """What the original reported for its own version of this workload; shown for comparison, never mixed in."""

    adaptive_avg_ttft_ms: float
    lru_avg_ttft_ms: float
    adaptive_hit_rate: float
    lru_hit_rate: float

    @property
    def gain(self) -> float:
        return 1 - self.adaptive_avg_ttft_ms / self.lru_avg_ttft_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentConfig:
    experiment: str
    description: str
    source: WorkloadSource | FileSource
    unit: Unit
    capacities: tuple[int, ...]
    policies: tuple[PolicyChoice, ...]
    seeds: tuple[int, ...] = (0,)
    models: tuple[CacheModel, ...] = CACHE_MODELS
    latency: LatencyModel = field(default_factory=LatencyModel)
    ablation: Ablation | None = None
    curve: CurvePlan | None = None
    published: Published | None = None
    bounds: bool = True

    def choices(self) -> tuple[PolicyChoice, ...]:
        """All policies to simulate, the baseline first, without duplicates."""
        pairs = self.ablation.pairs() if self.ablation else ()
        return tuple(dict.fromkeys((PolicyChoice(BASELINE), *self.policies, *pairs)))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _with_options(name: str, options: tuple[tuple[str, float], ...]) -> str:
    given = ",".join(f"{key}={value:g}" for key, value in options)
    return f"{name}({given})" if given else name
