"""What the engine allocates per layer: windowed layers keep every token where that gives one kind of cache.

The engine frees what a window no longer sees, and gives such layers a group of blocks of their own. A donor needs every
token, and a load one group. Recurrent layers are left alone: they need the groups, and are not served.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec, replace_as

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheSpec


def keep_every_token(specs: dict[str, KVCacheSpec]) -> dict[str, KVCacheSpec]:
    """The layers' specs, without windows if all layers are alike then. Attention itself keeps its windows."""
    whole = {name: _whole(spec) for name, spec in specs.items()}
    plain = [spec for spec in whole.values() if type(spec) is FullAttentionSpec]
    kinds = {replace(spec, sliding_window=None) for spec in plain}
    windows = {spec.sliding_window for spec in plain} - {None}
    return whole if len(plain) == len(specs) and len(kinds) == 1 and len(windows) <= 1 else specs


def _whole(spec: KVCacheSpec) -> KVCacheSpec:
    if type(spec) is not SlidingWindowSpec:
        return spec
    return replace_as(spec, FullAttentionSpec, drop=("extra_retained_tokens",))
