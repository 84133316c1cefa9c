"""SGLang's host tier on a CPU: stock pins memory through CUDA and copies with compiled kernels that are not here.

On where ``HOST_TIER_ON_CPU`` is set; plain torch memory and index copies in their place, nothing else changes.
"""

from __future__ import annotations

import os
from typing import Any, Final

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

VARIABLE: Final = "HOST_TIER_ON_CPU"
POOL: Final = "sglang.srt.mem_cache.pool_host.mha.MHATokenToKVPoolHost"


def register() -> None:
    if not os.environ.get(VARIABLE):
        return
    HookRegistry.register(f"{POOL}.__init__", unpinned, HookType.BEFORE)
    HookRegistry.register(f"{POOL}.load_to_device_per_layer", load, HookType.REPLACE)
    HookRegistry.register(f"{POOL}.backup_from_device_all_layer", back_up, HookType.REPLACE)


def unpinned(*given: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    from sglang.srt.mem_cache.pool_host import base, common

    common.ALLOC_MEMORY_FUNCS["cpu"] = allocate
    base.HICACHE_HOST_MEMORY_RESERVE_BYTES = 0  # stock wants 10 GiB to spare, for pools of many; these have some MB
    return given, {**named, "pin_memory": False}


def allocate(dims: Any, *, dtype: torch.dtype, device: str, **_: Any) -> torch.Tensor:
    return torch.zeros(dims, dtype=dtype, device=device)


def load(
    pool: Any,
    device_pool: Any,
    host_indices: torch.Tensor,
    device_indices: torch.Tensor,
    layer_id: int,
    io_backend: str,
    *,
    is_draft: bool = False,
) -> None:
    assert not is_draft
    rows = rows_of(pool, host_indices)
    pool.device_k_buffers[layer_id][device_indices] = pool.k_data_refs[layer_id][rows]
    pool.device_v_buffers[layer_id][device_indices] = pool.v_data_refs[layer_id][rows]


def back_up(
    pool: Any, device_pool: Any, host_indices: torch.Tensor, device_indices: torch.Tensor, io_backend: str
) -> None:
    rows = rows_of(pool, host_indices)
    for layer in range(pool.layer_num):
        pool.k_data_refs[layer][rows] = pool.device_k_buffers[layer][device_indices]
        pool.v_data_refs[layer][rows] = pool.device_v_buffers[layer][device_indices]


def rows_of(pool: Any, host_indices: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Where the tokens are in a layer of the host pool."""
    if pool.layout == "layer_first":
        return (host_indices,)
    assert pool.layout == "page_first_direct", pool.layout
    return host_indices // pool.page_size, host_indices % pool.page_size
