from collections.abc import Sequence

from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import KVCacheBlock

class KVCacheBlocks:
    blocks: tuple[Sequence[KVCacheBlock], ...]
    # Stock vLLM overloads this: None only comes back with allow_none, which the adapter does not use.
    def get_block_ids(
        self, allow_none: bool = False, *, group_ids: Sequence[int] | None = None
    ) -> tuple[list[int], ...]: ...

class KVCacheManager:
    block_pool: BlockPool
    def get_blocks(self, request_id: str) -> KVCacheBlocks: ...
    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]: ...
    def evict_blocks(self, block_ids: set[int]) -> None: ...
