from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from sglang.srt.mem_cache.radix_cache import RadixKey

@dataclass
class MatchPrefixParams:
    key: RadixKey
    cow_mamba: bool = ...
    req: Any = ...

@dataclass
class InsertParams:
    key: RadixKey | None = ...
    value: torch.Tensor | None = ...
    prev_prefix_len: int = ...
    inserted_len: int = ...

@dataclass
class InitLoadBackParams:
    best_match_node: Any
    host_hit_length: int
    mem_quota: int | None = ...
    req: Any = ...

@dataclass
class CacheRequestHandle:
    rid: str
    attempt_id: int

class MatchResult(NamedTuple):
    device_prefix_len: int
    last_device_node: Any
    last_host_node: Any
    best_match_node: Any
    host_hit_length: int = ...
    full_kv_hit_length: int = ...
