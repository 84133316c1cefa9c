"""A KV connector that claims tokens and then reports their load as failed. It uses nothing of SemBlend.

Requests with ``kv_transfer_params: {"fail": true}`` are claimed, up to the last full block. The engine's answer to a
failed load under ``kv_load_failure_policy: recompute`` must be to compute those tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
    from vllm.forward_context import ForwardContext
    from vllm.v1.attention.backend import AttentionMetadata
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request


@dataclass
class Loads(KVConnectorMetadata):
    """Blocks to be loaded in this step."""

    block_ids: set[int] = field(default_factory=set)


class FailingConnector(KVConnectorBase_V1):
    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._block_tokens = vllm_config.cache_config.block_size
        self._claimed: set[str] = set()
        self._wanted: set[int] = set()
        self._failed: set[int] = set()

    # scheduler side

    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        asked: Any = getattr(request, "kv_transfer_params", None) or {}
        if not asked.get("fail") or request.request_id in self._claimed:
            return 0, False
        last = (request.num_prompt_tokens - 1) // self._block_tokens * self._block_tokens
        return max(last - num_computed_tokens, 0), False

    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        if num_external_tokens:
            self._claimed.add(request.request_id)
            (ids,) = blocks.get_block_ids()
            self._wanted |= set(ids[: num_external_tokens // self._block_tokens])

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        loads, self._wanted = Loads(self._wanted), set()
        return loads

    # worker side

    def start_load_kv(self, forward_context: ForwardContext, **kwargs: Any) -> None:
        metadata = self._connector_metadata
        if isinstance(metadata, Loads):
            self._failed |= metadata.block_ids

    def get_block_ids_with_load_errors(self) -> set[int]:
        failed, self._failed = self._failed, set()
        return failed

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is loaded."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: AttentionMetadata, **kwargs: Any
    ) -> None:
        """Nothing is saved."""

    def wait_for_save(self) -> None:
        """Nothing is saved."""
