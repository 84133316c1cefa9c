from typing import NewType, TypeAlias

BlockHash = NewType("BlockHash", bytes)
ExternalBlockHash: TypeAlias = bytes | int

class KVCacheBlock:
    block_id: int
    ref_cnt: int
    is_null: bool
    @property
    def block_hash(self) -> bytes | None: ...

def maybe_convert_block_hash(hash_bytes: BlockHash) -> ExternalBlockHash: ...
