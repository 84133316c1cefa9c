from typing import Any

from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheSpec

class Worker:
    vllm_config: VllmConfig
    rank: int
    local_rank: int
    model_runner: Any
    def get_kv_cache_spec(self) -> dict[str, KVCacheSpec]: ...
    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None: ...
