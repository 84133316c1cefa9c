"""Prefill of MLA models without a prefix: attends to the K and V it is given, as the kernels of GPUs do.

Stock ``torch_native`` reads K and V of all heads from the pool, which holds MLA's entries instead. A kernel and nothing
else: what is written to the pool, and when, is the engine's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

TARGET: Final = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend.forward_extend"


def register() -> None:
    HookRegistry.register(TARGET, extend, HookType.AROUND)


def extend(
    original: Callable[..., torch.Tensor],
    backend: Any,
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    layer: Any,
    batch: Any,
    *given: Any,
    **named: Any,
) -> torch.Tensor:
    if not hasattr(backend.token_to_kv_pool, "kv_lora_rank") or layer.tp_k_head_num == 1:
        return original(backend, query, keys, values, layer, batch, *given, **named)
    assert not any(batch.extend_prefix_lens_cpu), "the model expands K and V only where there is no prefix"
    sides = zip(
        (query, keys, values),
        (layer.tp_q_head_num, layer.tp_k_head_num, layer.tp_v_head_num),
        (layer.qk_head_dim, layer.qk_head_dim, layer.v_head_dim),
        strict=True,
    )
    parts = [side.reshape(-1, heads, dim).split(batch.extend_seq_lens_cpu) for side, heads, dim in sides]
    attended = [
        torch.nn.functional.scaled_dot_product_attention(
            *(part.movedim(0, 1).unsqueeze(0) for part in row), is_causal=True, scale=layer.scaling
        )
        .squeeze(0)
        .movedim(1, 0)
        for row in zip(*parts, strict=True)
    ]
    return torch.cat(attended).reshape(len(query), -1)
