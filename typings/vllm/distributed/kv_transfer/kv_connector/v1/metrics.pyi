from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from vllm.config import VllmConfig

PromMetric: TypeAlias = Any
PromMetricT = TypeVar("PromMetricT")

@dataclass
class KVConnectorStats:
    data: dict[str, Any] = field(default_factory=dict)
    def to_dict(self) -> dict[str, Any]: ...
    def reset(self) -> None: ...
    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats: ...
    def reduce(self) -> dict[str, int | float]: ...
    def is_empty(self) -> bool: ...

class KVConnectorPromMetrics:
    _gauge_cls: Any
    _counter_cls: Any
    _histogram_cls: Any
    per_engine_labelvalues: dict[int, list[object]]
    def __init__(
        self,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None: ...
    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None: ...
