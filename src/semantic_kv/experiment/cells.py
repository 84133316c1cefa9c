"""A study in, its cells out. A cell is one simulation: trace, cache model, policy or bound, capacity, seed.

Cells are independent, so they can run in any order and anywhere. They are stored under a digest of everything that
decides their figures.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import semantic_kv
import sembase
from semantic_kv.cache.result import CacheModel, Unit
from semantic_kv.experiment.config import ExperimentConfig, PolicyChoice, WorkloadSource
from sembase.latency import LatencyModel

BoundName = Literal["ceiling", "clairvoyant"]
BOUNDS: Final[tuple[BoundName, ...]] = ("ceiling", "clairvoyant")
WHOLE_TRACE: Final = "trace"
# The sources that decide the figures of a cell; the content of its trace has a digest of its own.
_SOURCES: Final = (
    *("semantic_kv/cache", "semantic_kv/policy", "semantic_kv/bound", "semantic_kv/latency", "semantic_kv/simulate.py"),
    *(
        "semantic_kv/experiment/execute.py",
        "sembase/trace",
        "sembase/latency.py",
        "sembase/labels.py",
        "sembase/compiled.py",
    ),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """``task`` is a policy or the name of a bound; ``capacity`` is in ``unit``."""

    trace: str
    model: CacheModel
    unit: Unit
    capacity: int
    seed: int
    task: PolicyChoice | BoundName

    @property
    def name(self) -> str:
        return self.task if isinstance(self.task, str) else self.task.name

    def digest(self, trace_digest: str, latency: LatencyModel) -> str:
        """Covers all that decides the figures, including our code: a changed policy must not find old results."""
        content = {**asdict(self), "trace": trace_digest, "latency": latency.as_record(), "code": code_digest()}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def seed_trace(config: ExperimentConfig, seed: int) -> str:
    """A generated trace has one key per seed; a recorded trace has the same key for all seeds."""
    return f"seed-{seed}" if isinstance(config.source, WorkloadSource) else WHOLE_TRACE


def sampled_trace(base: str, rate: float, draw: int) -> str:
    return f"{base}@{rate:g}#{draw}"


def cells_of(config: ExperimentConfig) -> tuple[Cell, ...]:
    """The cells of the main table and of the curve, without duplicates."""
    cells: dict[Cell, None] = {}
    tasks: tuple[PolicyChoice | BoundName, ...] = (*config.choices(), *(BOUNDS if config.bounds else ()))
    for seed in config.seeds:
        trace = seed_trace(config, seed)
        for model in config.models:
            for capacity in config.capacities:
                cells.update(dict.fromkeys(Cell(trace, model, config.unit, capacity, seed, task) for task in tasks))
    cells.update(dict.fromkeys(_curve_cells(config)))
    return tuple(cells)


def _curve_cells(config: ExperimentConfig) -> Iterable[Cell]:
    """The curve uses the first seed. A sampled cache has the sampled fraction of the capacity."""
    if config.curve is None:
        return
    plan, seed = config.curve, config.seeds[0]
    base = seed_trace(config, seed)
    tasks: tuple[PolicyChoice | BoundName, ...] = (*plan.policies, *(BOUNDS if config.bounds else ()))
    for capacity in plan.capacities:
        for task in tasks:
            yield Cell(base, plan.model, config.unit, capacity, seed, task)
        for rate in plan.sample_rates:
            for draw in range(plan.draws):
                for choice in plan.policies:
                    scaled = max(1, round(rate * capacity))
                    yield Cell(sampled_trace(base, rate, draw), plan.model, config.unit, scaled, seed, choice)


def cell_json(cell: Cell) -> dict[str, Any]:
    return asdict(cell)


@cache
def code_digest() -> str:
    """Digest of the sources that decide figures. Third-party policies are not included: use --fresh if one changed."""
    digest = hashlib.sha256()
    for name, source in code_sources():
        digest.update(name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def code_sources() -> list[tuple[str, Path]]:
    """The name and path of every source file in the digest."""
    found: list[tuple[str, Path]] = []
    for name in _SOURCES:
        package = semantic_kv if name.startswith("semantic_kv/") else sembase
        root = Path(package.__file__ or "").parent.parent
        target = root / name
        sources = [target] if target.is_file() else sorted(target.rglob("*.py"))
        found += [(source.relative_to(root).as_posix(), source) for source in sources]
    return found
