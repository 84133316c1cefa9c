from dataclasses import dataclass
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.v1.attention.backend import AttentionMetadataBuilder, CommonAttentionMetadata
from vllm.v1.kv_cache_interface import KVCacheSpec

@dataclass(eq=False)
class AttentionGroup:
    backend: type[Any]
    layer_names: list[str]
    kv_cache_spec: KVCacheSpec
    kv_cache_group_id: int
    kernel_block_size: int | None = None
    kernel_block_stride: int = 0
    kernel_block_table: torch.Tensor | None = None
    kernel_block_offsets: torch.Tensor | None = None
    metadata_builders: list[AttentionMetadataBuilder] = ...
    def create_metadata_builders(
        self,
        vllm_config: VllmConfig,
        device: torch.device,
        kernel_block_size: int | None = None,
        num_metadata_builders: int = 1,
    ) -> None: ...
    def get_metadata_builder(self, ubatch_id: int = 0) -> AttentionMetadataBuilder: ...
    def build_metadata(
        self,
        common_attn_metadata: CommonAttentionMetadata,
        ubatch_idx: int = 0,
        common_prefix_len: int = 0,
        **kwargs: Any,
    ) -> Any: ...
