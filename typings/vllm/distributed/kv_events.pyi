from typing import Any

from vllm.v1.core.kv_cache_utils import ExternalBlockHash

class KVCacheEvent: ...

class BlockStored(KVCacheEvent):
    block_hashes: list[ExternalBlockHash]
    parent_block_hash: ExternalBlockHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None
    group_idx: int | None

class BlockRemoved(KVCacheEvent):
    block_hashes: list[ExternalBlockHash]
    medium: str | None
    group_idx: int | None

class AllBlocksCleared(KVCacheEvent): ...
