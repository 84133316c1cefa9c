"""Extend attention over the new queries alone; stock ``torch_native`` pads them to the whole sequence.

Stock cost is that of a full prefill whatever the prefix, so even an exact hit would seem slow. On in every arm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

TARGET: Final = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend._run_sdpa_forward_extend"


def register() -> None:
    HookRegistry.register(TARGET, extend, HookType.AROUND)


def extend(
    original: Callable[..., torch.Tensor],
    backend: Any,
    query: torch.Tensor,
    output: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    encoder_lens: torch.Tensor | None = None,
    *,
    scaling: float | None = None,
    enable_gqa: bool = False,
    causal: bool = False,
    is_cross_attn: bool = False,
    sliding_window_size: int | None = None,
) -> torch.Tensor:
    """The stock routine's arguments; whatever is not plain causal attention goes to the stock routine."""
    if encoder_lens is not None or is_cross_attn or not causal or sliding_window_size is not None:
        return original(
            backend, query, output, k_cache, v_cache, req_to_token, req_pool_indices, seq_lens,
            extend_prefix_lens, extend_seq_lens, encoder_lens, scaling=scaling, enable_gqa=enable_gqa,
            causal=causal, is_cross_attn=is_cross_attn, sliding_window_size=sliding_window_size,
        )  # fmt: skip
    heads_first = query.movedim(0, 1)
    start = 0
    rows = zip(req_pool_indices.tolist(), seq_lens.tolist(), extend_seq_lens.tolist(), strict=True)
    for row, total, new in rows:
        slots = req_to_token[row, :total]
        keys = k_cache[slots].movedim(0, 1).to(query.dtype)
        values = v_cache[slots].movedim(0, 1).to(query.dtype)
        mask = None
        if total > new > 1:
            mask = torch.ones(new, total, dtype=torch.bool, device=query.device).tril(total - new)
        attended = torch.nn.functional.scaled_dot_product_attention(
            heads_first[:, start : start + new].unsqueeze(0),
            keys.unsqueeze(0),
            values.unsqueeze(0),
            attn_mask=mask,
            is_causal=mask is None and new > 1,
            enable_gqa=enable_gqa,
            scale=scaling,
        )
        output[start : start + new] = attended.squeeze(0).movedim(1, 0)
        start += new
    return output
