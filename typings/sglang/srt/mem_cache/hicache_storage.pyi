from typing import Any

class HiCacheStorageConfig:
    tp_rank: int
    tp_size: int
    pp_rank: int
    pp_size: int
    attn_cp_rank: int
    attn_cp_size: int
    model_name: str | None
    dp_rank: int
    extra_config: dict[str, Any] | None
    dcp_size: int
    dcp_rank: int

class HiCacheStorage:
    def register_mem_pool_host(self, mem_pool_host: Any) -> None: ...
