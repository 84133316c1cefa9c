"""Start-up self-test: keys rotated by us must equal keys rotated by the model; otherwise the adapter is disabled."""

from __future__ import annotations

from typing import Any, Final

import torch

from semblend.kv.rope import Rotation, rotate_keys

TOKENS: Final = 8
SHIFTS: Final = (1, 37, 100, 1000, -100)
# Two roundings to the cache's precision, relative to the size of K; a wrong angle gives errors of the order of 1.
TOLERANCE: Final = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}


class SelfTestError(Exception):
    """Keys rotated by the model and by us differ."""


def check_rotation(model: Any, rotation: Rotation, dtype: torch.dtype) -> None:
    """Every layer's own rotary embedding, at positions of the kind that plans move between."""
    embeddings = rotary_embeddings(model)
    if not embeddings:
        raise SelfTestError("the model has no rotary embedding that can be called")
    for embedding in embeddings:
        worst = max(_error(embedding, rotation, shift, dtype) for shift in SHIFTS)
        limit = TOLERANCE.get(dtype)
        if limit is None or not worst <= limit:
            raise SelfTestError(f"K rotated by us differs from K rotated by the model by {worst:.4f} (limit {limit})")


def rotary_embeddings(model: Any) -> list[Any]:
    """Each once; layers usually share one."""
    found = {
        id(layer): layer
        for layer in model.modules()
        if hasattr(layer, "cos_sin_cache") and hasattr(layer, "rotary_dim")
    }
    return list(found.values())


def _error(embedding: Any, rotation: Rotation, shift: int, dtype: torch.dtype) -> float:
    generator = torch.Generator().manual_seed(0)
    heads, size = 2, int(embedding.head_size)
    plain = torch.randn(TOKENS, heads, size, generator=generator).to(dtype)
    first = torch.arange(max(0, -shift), max(0, -shift) + TOKENS)
    moved = rotate_keys(_rotated(embedding, first, plain), shift, rotation)
    own = _rotated(embedding, first + shift, plain)
    return float((moved.float() - own.float()).norm() / own.float().norm())


def _rotated(embedding: Any, positions: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    device = embedding.cos_sin_cache.device
    flat = keys.reshape(len(positions), -1).clone().to(device)
    _, turned = embedding.forward_native(positions.to(device), flat.clone(), flat)
    return turned.reshape(keys.shape).cpu()
