"""One cache to simulate: its size, its cache model and its two policies. Both simulators are built from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from semantic_kv.cache.result import CACHE_MODELS, UNITS, CacheModel, Unit
from semantic_kv.policy.interface import AdmissionPolicy, EvictionPolicy, Setting
from semantic_kv.policy.registry import AdmissionTarget, EvictionTarget, admission, eviction, merged_options
from semantic_kv.policy.reuse import REUSE, Reuse
from sembase.errors import ConfigurationError
from sembase.trace.columns import BlockTrace

Options = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class CacheSpec:
    admit: AdmissionPolicy
    evict: EvictionPolicy
    capacity: int
    model: CacheModel
    unit: Unit
    admit_options: Mapping[str, float]
    evict_options: Mapping[str, float]
    seed: int
    reuse: Reuse = field(default_factory=Reuse)

    def setting(self, options: Mapping[str, float], node_count: int) -> Setting:
        return Setting(
            capacity=self.capacity,
            by_tokens=self.unit == "tokens",
            is_tree=self.model == "prefix_tree",
            node_count=node_count,
            options=options,
            seed=self.seed,
        )

    def columns_of(self, trace: BlockTrace) -> BlockTrace:
        """The trace in the form this model reads."""
        if self.model == "block_set":
            return trace.as_block_set()
        if trace.parent is None:
            raise ConfigurationError(
                f"trace '{trace.name}' is a block set without prefixes: use model='block_set', or load it as a tree"
            )
        return trace


def cache_spec(
    *,
    capacity: int,
    admit: str | AdmissionTarget = "always",
    evict: str | EvictionTarget = "lru",
    model: CacheModel = "prefix_tree",
    unit: Unit = "blocks",
    options: Options | None = None,
    seed: int = 0,
    reuse: Reuse | None = None,
) -> CacheSpec:
    """Checks the names and numbers a user gives; every error about them is raised here."""
    if capacity < 0:
        raise ConfigurationError(f"capacity must not be negative, got {capacity}")
    if model not in CACHE_MODELS:
        raise ConfigurationError(f"model must be one of {', '.join(CACHE_MODELS)}, got '{model}'")
    if unit not in UNITS:
        raise ConfigurationError(f"unit must be one of {', '.join(UNITS)}, got '{unit}'")
    if reuse is not None and reuse.name not in REUSE:
        raise ConfigurationError(f"reuse must be one of {', '.join(REUSE)}, got '{reuse.name}'")
    if reuse is not None and reuse.is_beyond_prefix and model != "prefix_tree":
        raise ConfigurationError(f"reuse '{reuse.name}' needs model='prefix_tree': a block set hits at any position")
    unknown = sorted(set(options or {}) - {"admit", "evict"})
    if unknown:
        raise ConfigurationError(f"options are given under 'admit' and 'evict', not under {', '.join(unknown)}")
    given = options or {}
    admitting, evicting = admission(admit), eviction(evict)
    return CacheSpec(
        admit=admitting,
        evict=evicting,
        capacity=capacity,
        model=model,
        unit=unit,
        admit_options=merged_options(admitting, given.get("admit")),
        evict_options=merged_options(evicting, given.get("evict")),
        seed=seed,
        reuse=reuse or Reuse(),
    )
