"""The rotation a model's configuration declares, or one sentence that says why it cannot be reproduced.

Configuration objects of Hugging Face go in, ``Rope`` or a reason comes out. Called by the adapters at start-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rope:
    theta: float
    rotary_dim: int


def rope_parameters(hf: Any) -> Mapping[str, Any] | None:
    """The parameters as vLLM 0.32 keeps them, or put together from the older two attributes; None without RoPE."""
    parameters = getattr(hf, "rope_parameters", None)
    if isinstance(parameters, Mapping) and parameters:
        return parameters
    scaling = getattr(hf, "rope_scaling", None)
    theta = getattr(hf, "rope_theta", None)
    older = dict(scaling) if isinstance(scaling, Mapping) else {}
    if theta is not None:
        older.setdefault("rope_theta", theta)
    return older or None


def read_rope(hf: Any, head_dim: int) -> Rope | str:
    """Base and width of the rotation, or the sentence that says why it cannot be reproduced."""
    parameters = rope_parameters(hf)
    if parameters is None:
        return "The model declares no RoPE: KV at absolute positions cannot be moved."
    if any(isinstance(value, Mapping) for value in parameters.values()):
        return "RoPE parameters differ by layer type: one rotation for all layers would be wrong."
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if "mrope_section" in parameters or "xdrope_section" in parameters or kind == "mrope":
        return "The model uses multi-axis RoPE (mrope), whose positions are not one number per token."
    if kind != "default":
        return f"RoPE variant '{kind}' scales its angles; only the unscaled default is reproduced."
    if parameters.get("use_fope"):
        return "The model uses Fourier position embedding instead of plain RoPE."
    if getattr(hf, "dual_chunk_attention_config", None):
        return "The model uses dual chunk attention, which rotates keys by chunk."
    if getattr(hf, "is_neox_style", True) is False or getattr(hf, "rope_interleaved", False):
        return "The model rotates interleaved pairs; only the half-split (NeoX) form is reproduced."
    theta = parameters.get("rope_theta")
    if isinstance(theta, bool) or not isinstance(theta, int | float) or theta <= 0:
        return f"The base of the rotation (rope_theta) cannot be read: {theta!r}."
    rotary_dim = _rotary_dim(parameters, head_dim)
    if rotary_dim is None:
        return "The rotary dimension of each head (partial_rotary_factor, rope_dim) cannot be read."
    return Rope(float(theta), rotary_dim)


def _rotary_dim(parameters: Mapping[str, Any], head_dim: int) -> int | None:
    """As vLLM's ``get_rope`` computes it: ``rope_dim`` first, else the factor, rounded down."""
    factor = parameters.get("partial_rotary_factor", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0.0 < factor <= 1.0:
        return None
    width = parameters.get("rope_dim") or int(head_dim * factor)
    if isinstance(width, bool) or not isinstance(width, int) or not 0 < width <= head_dim or width % 2:
        return None
    return width
