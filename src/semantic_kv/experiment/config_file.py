"""A YAML file in, an ``ExperimentConfig`` out. Unknown keys and names are rejected with the closest known one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from semantic_kv.cache.result import CACHE_MODELS, UNITS, CacheModel, Unit
from semantic_kv.experiment.config import (
    ALWAYS,
    Ablation,
    CurvePlan,
    ExperimentConfig,
    FileSource,
    PolicyChoice,
    Published,
    WorkloadSource,
)
from semantic_kv.experiment.fields import (
    Fields,
    amount,
    flag,
    fraction,
    many,
    number,
    one_of,
    positive,
    scalar,
    text,
    whole,
)
from semantic_kv.policy.registry import ADMISSION, EVICTION
from semantic_kv.policy.reuse import REUSE, ReuseName
from semantic_kv.workload import WORKLOADS
from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.latency import COEFFICIENTS, LatencyModel, latency_model_from_record
from sembase.registry import load_target

T = TypeVar("T")
_MAX_BYTES: Final = 1 << 20
_NAME: Final = "abcdefghijklmnopqrstuvwxyz0123456789_-"


def load_config(path: Path) -> ExperimentConfig:
    """Relative trace paths start at the folder of the file."""
    if not path.is_file():
        raise ConfigurationError(f"experiment file '{path}' does not exist")
    if path.stat().st_size > _MAX_BYTES:
        raise ConfigurationError(f"{path}: not an experiment file (larger than {_MAX_BYTES} bytes)")
    try:
        read, yaml_error = load_target("yaml:safe_load"), load_target("yaml:YAMLError")
    except ModuleNotFoundError:
        raise MissingDependencyError("pyyaml", "simulator", "reading an experiment file") from None
    try:
        content = read(path.read_text(encoding="utf-8"))
    except (yaml_error, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: invalid YAML: {' '.join(str(error).split())}") from None
    return parse_config(content, path.name)


def parse_config(content: object, where: str) -> ExperimentConfig:
    root = Fields(content, where)
    config = ExperimentConfig(
        experiment=root.take("experiment", _experiment_id),
        description=" ".join(root.take("description", text).split()),
        source=root.take("source", _source),
        unit=cast(Unit, root.take("unit", one_of(UNITS))),
        capacities=root.take("capacities", many(positive)),
        policies=root.take("policies", many(policy_choice)),
        seeds=root.take("seeds", many(whole), (0,)),
        models=root.take("models", many(_model), CACHE_MODELS),
        latency=root.take("latency", _latency, LatencyModel()),
        ablation=root.take_or_none("ablation", _ablation),
        curve=root.take_or_none("curve", _curve),
        published=root.take_or_none("published", _published),
        bounds=root.take("bounds", flag, True),
    )
    root.finish()
    if "block_set" in config.models and any(choice.reuse != "prefix" for choice in config.choices()):
        raise ConfigurationError(f"{where}: reuse beyond the prefix needs 'models: [prefix_tree]'")
    return config


def policy_choice(value: object, where: str) -> PolicyChoice:
    """``lru``, ``lru+second_use``, or a mapping with ``evict``, ``admit``, their ``..._options`` and ``reuse``."""
    if isinstance(value, str):
        evict, _, admit = value.partition("+")
        return PolicyChoice(_eviction(evict, where), _admission(admit or ALWAYS, where))
    entry = Fields(value, where)
    choice = PolicyChoice(
        entry.take("evict", _eviction),
        entry.take("admit", _admission, ALWAYS),
        entry.take("evict_options", _options(number), ()),
        entry.take("admit_options", _options(number), ()),
        entry.take("reuse", _reuse, "prefix"),
    )
    entry.finish()
    return choice


def _eviction(value: object, where: str) -> str:
    return one_of(EVICTION.names())(value, where)


def _admission(value: object, where: str) -> str:
    return one_of(ADMISSION.names())(value, where)


def _reuse(value: object, where: str) -> ReuseName:
    return cast(ReuseName, one_of(REUSE)(value, where))


def _options(read: Callable[[object, str], T]) -> Callable[[object, str], tuple[tuple[str, T], ...]]:
    """Accepts any key; the policy or format checks which ones it knows."""

    def read_all(value: object, where: str) -> tuple[tuple[str, T], ...]:
        entries = Fields(value, where)
        keys = sorted(str(key) for key in cast(dict[Any, Any], value))
        return tuple((key, entries.take(key, read)) for key in keys)

    return read_all


def _experiment_id(value: object, where: str) -> str:
    """The id becomes part of a folder name."""
    name = text(value, where)
    if not set(name) <= set(_NAME):
        raise ConfigurationError(f"{where}: '{name}' may contain only lower-case letters, digits, '_' and '-'")
    return name


def _source(value: object, where: str) -> WorkloadSource | FileSource:
    entry = Fields(value, where)
    source: WorkloadSource | FileSource
    if entry.has("workload") == entry.has("path"):
        raise ConfigurationError(f"{where}: give either 'workload' (generated) or 'path' (recorded trace)")
    if entry.has("workload"):
        source = WorkloadSource(
            entry.take("workload", one_of(WORKLOADS.names())),
            entry.take_or_none("sessions", positive),
            entry.take_or_none("requests_per_session", positive),
            entry.take("tenants", positive, 1),
        )
    else:
        source = FileSource(
            entry.take("path", text),
            entry.take_or_none("format", text),
            entry.take_or_none("most_requests", positive),
            entry.take("options", _options(scalar), ()),
        )
    entry.finish()
    return source


def _latency(value: object, where: str) -> LatencyModel:
    entry = Fields(value, where)
    given = {name: entry.take(name, amount, 0.0) for name in COEFFICIENTS if entry.has(name)}
    for name in ("base_ms", "ms_per_uncached_token"):
        entry.take(name, amount)
    entry.finish()
    return latency_model_from_record(given)


def _ablation(value: object, where: str) -> Ablation:
    entry = Fields(value, where)
    ablation = Ablation(entry.take("admit", many(_admission)), entry.take("evict", many(_eviction)))
    entry.finish()
    return ablation


def _curve(value: object, where: str) -> CurvePlan:
    entry = Fields(value, where)
    curve = CurvePlan(
        entry.take("policies", many(policy_choice)),
        tuple(sorted(entry.take("capacities", many(positive)))),
        entry.take("sample_rates", many(fraction), ()),
        entry.take("draws", positive, 3),
        entry.take("model", _model, "prefix_tree"),
    )
    entry.finish()
    return curve


def _published(value: object, where: str) -> Published:
    entry = Fields(value, where)
    published = Published(
        entry.take("adaptive_avg_ttft_ms", amount),
        entry.take("lru_avg_ttft_ms", amount),
        entry.take("adaptive_hit_rate", fraction),
        entry.take("lru_hit_rate", fraction),
    )
    entry.finish()
    return published


def _model(value: object, where: str) -> CacheModel:
    return cast(CacheModel, one_of(CACHE_MODELS)(value, where))
