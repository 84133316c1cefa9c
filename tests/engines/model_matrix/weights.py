"""Random weights under which nothing is trivial: norms, biases and sinks differ from one and zero.

With norm weights of one, a model whose norm follows RoPE would pass for one that can be moved.
"""

from __future__ import annotations

import math
from typing import Any

import torch


def fill_randomly(model: Any) -> None:
    """Every floating-point parameter and buffer that a checkpoint would hold, by the kind its name tells."""
    random = torch.Generator().manual_seed(0)
    named = dict(model.named_parameters()) | model.state_dict()
    with torch.no_grad():
        for name, tensor in named.items():
            if tensor.is_floating_point() and tensor.numel() and tensor.device.type != "meta":
                tensor.data.copy_(_values(name.lower(), tensor.shape, random).to(tensor.dtype))


def _values(name: str, shape: torch.Size, random: torch.Generator) -> torch.Tensor:
    values = torch.randn(shape, generator=random)
    if "norm" in name or "ln_" in name or name.endswith("layernorm.weight"):
        return 1 + 0.3 * values
    if len(shape) < 2:
        return 0.3 * values
    if "embed" in name or "wte" in name or "wpe" in name:
        return 0.5 * values
    return values * 1.2 / math.sqrt(shape[-1])
