from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import KVCacheConfig

class Worker:
    vllm_config: VllmConfig
    rank: int
    local_rank: int
    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None: ...
