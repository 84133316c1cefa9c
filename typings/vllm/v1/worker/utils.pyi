from typing import Any

from vllm.v1.attention.backend import AttentionMetadataBuilder, CommonAttentionMetadata
from vllm.v1.kv_cache_interface import KVCacheSpec

class AttentionGroup:
    layer_names: list[str]
    kv_cache_spec: KVCacheSpec
    kv_cache_group_id: int
    kernel_block_size: int | None
    metadata_builders: list[AttentionMetadataBuilder]
    def get_metadata_builder(self, ubatch_id: int = 0) -> AttentionMetadataBuilder: ...
    def build_metadata(
        self,
        common_attn_metadata: CommonAttentionMetadata,
        ubatch_idx: int = 0,
        common_prefix_len: int = 0,
        **kwargs: Any,
    ) -> Any: ...
