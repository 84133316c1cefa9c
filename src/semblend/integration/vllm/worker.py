"""The stock worker, which also lends its model to the connector: ``--worker-cls`` takes its dotted name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.platforms import current_platform

from semblend.integration.vllm.cache_specs import keep_every_token
from semblend.integration.vllm.connector_v1 import SemBlendConnectorV1

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec

if TYPE_CHECKING or not current_platform.is_cpu():
    from vllm.v1.worker.gpu_worker import Worker as StockWorker
else:
    from vllm.v1.worker.cpu_worker import CPUWorker as StockWorker


class SemBlendWorker(StockWorker):
    """Adds two things: the cache keeps every token, and the connector gets the model runner for its sparse forward."""

    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]:
        specs = super().get_kv_cache_spec()
        return specs if self.vllm_config.kv_transfer_config is None else keep_every_token(specs)

    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        super().initialize_from_config(kv_cache_config)
        if has_kv_transfer_group():
            for connector in own_connectors(get_kv_transfer_group()):
                connector.lend_model(self.model_runner)


def own_connectors(connector: object) -> list[SemBlendConnectorV1]:
    """The connector itself, or ours among those inside vLLM's MultiConnector."""
    if isinstance(connector, SemBlendConnectorV1):
        return [connector]
    return [own for child in getattr(connector, "sub_connectors", ()) for own in own_connectors(child)]
