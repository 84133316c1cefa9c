from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

@dataclass
class TreeCacheBuildContext:
    server_args: Any
    params: Any
    is_hybrid_swa: bool
    is_hybrid_ssm: bool
    enable_hierarchical_cache: bool
    disable_radix_cache: bool
    tp_worker: Any
    model_config: Any
    tp_size: int
    tp_rank: int
    tp_group: Any

def register_radix_cache_backend(name: str, factory: Callable[[TreeCacheBuildContext], Any]) -> None: ...
def get_radix_cache_factory(name: str) -> Callable[[TreeCacheBuildContext], Any] | None: ...
def registered_radix_cache_backends() -> list[str]: ...
def create_unified_radix_cache(
    ctx: TreeCacheBuildContext, *, cache_class: type[UnifiedRadixCache] | None = ...
) -> Any: ...
