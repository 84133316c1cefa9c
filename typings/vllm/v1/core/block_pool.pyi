from collections.abc import Iterable, Sequence

from vllm.distributed.kv_events import KVCacheEvent
from vllm.v1.core.kv_cache_utils import BlockHash, KVCacheBlock
from vllm.v1.request import Request

class BlockPool:
    num_gpu_blocks: int
    enable_caching: bool
    hash_block_size: int
    blocks: list[KVCacheBlock]
    null_block: KVCacheBlock
    enable_kv_cache_events: bool
    kv_event_queue: list[KVCacheEvent]
    def touch(self, blocks: Sequence[KVCacheBlock]) -> None: ...
    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None: ...
    def get_cached_block(
        self, block_hash: BlockHash, kv_cache_group_ids: Sequence[int]
    ) -> list[KVCacheBlock] | None: ...
    def cache_full_blocks(
        self,
        request: Request,
        blocks: list[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: list[bool] | None = None,
    ) -> None: ...
    def evict_blocks(self, block_ids: set[int]) -> None: ...
    def get_num_free_blocks(self) -> int: ...
    def take_events(self) -> list[KVCacheEvent]: ...
