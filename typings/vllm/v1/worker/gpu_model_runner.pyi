from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.worker.utils import AttentionGroup

class GPUModelRunner:
    vllm_config: VllmConfig
    device: torch.device
    attn_groups: list[list[AttentionGroup]]
    kv_cache_config: KVCacheConfig
    kv_caches: list[torch.Tensor]
    model: Any
    def get_model(self) -> Any: ...
