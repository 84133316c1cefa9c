"""The figures of one cell, as stored on disk (5 to 20 KB per cell, for any length of trace)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from semantic_kv.bound.result import BoundKind
from semantic_kv.cache.result import Unit
from sembase.errors import ContractError


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over some requests. Rates are quotients of sums, so tallies can be added before dividing."""

    requests: int
    references: int
    hit_blocks: int
    prompt_tokens: int
    hit_tokens: int
    ttft_sum_ms: float

    @property
    def hit_ratio(self) -> float:
        return self.hit_blocks / self.references if self.references else 0.0

    @property
    def token_hit_ratio(self) -> float:
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def share(self, unit: Unit) -> float:
        """The hit ratio in the unit of the capacity, as used by bounds, headroom and curves."""
        return self.hit_ratio if unit == "blocks" else self.token_hit_ratio

    @property
    def ttft_mean_ms(self) -> float:
        return self.ttft_sum_ms / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class LabelFigures:
    label: str
    references: int
    hit_blocks: int
    evicted: int


@dataclass(frozen=True, slots=True)
class TenantFigures:
    tenant: str
    tally: Tally


@dataclass(frozen=True, slots=True)
class WeightSeries:
    """The label weights of an adaptive policy over time; ``labels`` names the columns of ``weights``."""

    requests: tuple[int, ...]
    labels: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class CellFigures:
    total: Tally
    admitted: int
    refused: int
    evicted: int
    ttft_p50_ms: float
    ttft_p95_ms: float
    ttft_p99_ms: float
    batches: tuple[Tally, ...]
    labels: tuple[LabelFigures, ...]
    tenants: tuple[TenantFigures, ...]
    used_over_time: tuple[tuple[int, int], ...]
    weights: WeightSeries | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class BoundFigures:
    """A ceiling of one cell. ``hit_blocks`` is None if only tokens are bounded."""

    standing: BoundKind
    requests: int
    references: int
    hit_blocks: int | None
    prompt_tokens: int
    hit_tokens: int
    ttft_sum_ms: float | None  # None if the latency model prices attention pairs, which a bound does not know
    seconds: float

    def share(self, unit: Unit) -> float:
        if unit == "tokens" or self.hit_blocks is None:
            return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        return self.hit_blocks / self.references if self.references else 0.0

    @property
    def ttft_mean_ms(self) -> float | None:
        return self.ttft_sum_ms / self.requests if self.ttft_sum_ms is not None and self.requests else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Figures = CellFigures | BoundFigures


def figures_from_json(record: object) -> Figures:
    """A stored cell. Raises ``ContractError`` for anything unexpected, so that the cell is simulated again."""
    try:
        return _read(record)  # type: ignore[arg-type]  # other types raise below
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ContractError(f"not a stored cell: {error!r}") from None


def _read(record: Mapping[str, Any]) -> Figures:
    if "standing" in record:
        return BoundFigures(**record)
    weights = record["weights"]
    return CellFigures(
        total=Tally(**record["total"]),
        admitted=record["admitted"],
        refused=record["refused"],
        evicted=record["evicted"],
        ttft_p50_ms=record["ttft_p50_ms"],
        ttft_p95_ms=record["ttft_p95_ms"],
        ttft_p99_ms=record["ttft_p99_ms"],
        batches=tuple(Tally(**batch) for batch in record["batches"]),
        labels=tuple(LabelFigures(**label) for label in record["labels"]),
        tenants=tuple(TenantFigures(each["tenant"], Tally(**each["tally"])) for each in record["tenants"]),
        used_over_time=tuple((int(request), int(used)) for request, used in record["used_over_time"]),
        weights=None
        if weights is None
        else WeightSeries(
            tuple(weights["requests"]), tuple(weights["labels"]), tuple(tuple(row) for row in weights["weights"])
        ),
        seconds=record["seconds"],
    )
