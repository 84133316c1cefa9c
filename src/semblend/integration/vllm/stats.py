"""The connector's metrics on the engine's own ``/metrics``: the scheduler half records, vLLM carries and exposes them.

Statistics travel as plain dictionaries to the API server, where the metrics are observed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
    PromMetric,
    PromMetricT,
)
from vllm.v1.metrics.prometheus import REGISTRY

from semblend.integration.core.metrics import MetricsRecorder, PrometheusFamilies, empty, is_empty, summary_line


@dataclass
class SemBlendStats(KVConnectorStats):
    """What a recorder took, in the class the engine carries."""

    def __post_init__(self) -> None:
        self.data = {**empty(), **self.data}

    def reset(self) -> None:
        self.data = empty()

    def is_empty(self) -> bool:
        return is_empty(self.data)

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        recorder = MetricsRecorder(self.data)
        recorder.merge(other.data)
        self.data = recorder.data
        return self

    def reduce(self) -> dict[str, int | float]:
        return summary_line(self.data)


class SemBlendPromMetrics(KVConnectorPromMetrics):
    """Registers ``vllm:semblend_*`` with the engine's labels and feeds them from ``SemBlendStats.data``."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        metric_types: dict[type[PromMetric], type[PromMetricT]],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._families = PrometheusFamilies(
            "vllm",
            labelnames,
            counter=self._counter_cls,
            histogram=self._histogram_cls,
            gauge=self._gauge_cls,
            registered=getattr(REGISTRY, "_names_to_collectors", {}).get,
        )
        for values in per_engine_labelvalues.values():
            self._families.show_zeros(values)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        self._families.observe(transfer_stats_data, self.per_engine_labelvalues[engine_idx])
