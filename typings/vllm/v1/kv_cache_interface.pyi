from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeVar

_SpecT = TypeVar("_SpecT", bound=KVCacheSpec)

@dataclass(frozen=True, kw_only=True)
class KVCacheSpec:
    block_size: int
    @property
    def page_size_bytes(self) -> int: ...

@dataclass(frozen=True, kw_only=True)
class AttentionSpec(KVCacheSpec):
    num_kv_heads: int
    head_size: int
    head_size_v: int
    dtype: Any
    kv_quant_mode: Any
    tokens_per_state: Any

@dataclass(frozen=True, kw_only=True)
class FullAttentionSpec(AttentionSpec):
    sliding_window: int | None
    attention_chunk_size: int | None
    non_causal: bool

class SlidingWindowSpec(AttentionSpec): ...
class MambaSpec(KVCacheSpec): ...

def replace_as(
    spec: KVCacheSpec, target_cls: type[_SpecT], *, drop: Collection[str] = (), **changes: Any
) -> _SpecT: ...

@dataclass
class KVCacheGroupSpec:
    layer_names: list[str]
    kv_cache_spec: KVCacheSpec

@dataclass
class KVCacheConfig:
    num_blocks: int
    kv_cache_tensors: list[Any]
    kv_cache_groups: list[KVCacheGroupSpec]
    kv_cache_layout: str | None = None
    hash_block_size: int | None = None
