"""The stock worker, which also lends its model to the connector: ``--worker-cls`` takes its dotted name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.v1.worker.cpu_worker import CPUWorker

from semblend.integration.vllm.connector_v1 import SemBlendConnectorV1

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheConfig


class SemBlendWorker(CPUWorker):
    """Adds one thing: after the KV cache exists, the connector gets the model runner for its sparse forward."""

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        super().initialize_from_config(kv_cache_config)
        if has_kv_transfer_group():
            connector = get_kv_transfer_group()
            if isinstance(connector, SemBlendConnectorV1):
                connector.lend_model(self.model_runner)
