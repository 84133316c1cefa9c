"""What a model's configuration says about positions, without the model: parameters, and what cannot be moved at all.

Configuration objects of Hugging Face go in; values, or one sentence that says why not, come out. What a configuration
cannot tell (pairing, layers without RoPE, norms after it) is measured on the loaded model: ``core.rotation_proof``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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


def immovable_reason(hf: Any) -> str | None:
    """Why KV of this model must not be moved although each key by itself could be; None if nothing is known.

    These effects begin at some position or come from the mask, so comparing K and V at a few distances may miss them.
    """
    if getattr(hf, "is_causal", True) is False:
        return "The model attends in both directions: its KV depends on later tokens."
    if getattr(hf, "num_kv_shared_layers", 0):
        return "Some layers of the model share KV with others, which is not supported."
    sections = _sections(hf)
    if any("mrope_section" in one or "xdrope_section" in one or _kind(one) == "mrope" for one in sections):
        return "The model uses multi-axis RoPE (mrope), whose positions are not one number per token."
    if any(one.get("use_fope") for one in sections) or getattr(hf, "use_fope", False):
        return "The model uses Fourier position embedding instead of plain RoPE."
    if getattr(hf, "dual_chunk_attention_config", None):
        return "The model uses dual chunk attention, which rotates keys by chunk."
    if getattr(hf, "attention_chunk_size", None):
        return "The model uses chunked local attention, whose mask depends on absolute positions."
    scaled = getattr(hf, "llama_4_scaling", None) or any(one.get("llama_4_scaling_beta") for one in sections)
    if scaled or getattr(hf, "attn_temperature_tuning", None):
        return "The model scales queries by absolute position (llama_4_scaling, attn_temperature_tuning)."
    return None


def position_boundaries(hf: Any) -> tuple[int, ...]:
    """The first positions beyond the lengths a model declares: its window, and its context before RoPE was scaled."""
    declared = [getattr(hf, name, None) for name in ("sliding_window", "original_max_position_embeddings")]
    declared += [one.get("original_max_position_embeddings") for one in _sections(hf)]
    return tuple(sorted({length + 1 for length in declared if isinstance(length, int) and length > 0}))


def _sections(hf: Any) -> list[Mapping[str, Any]]:
    """The parameters, and those of each layer type where they differ."""
    parameters = rope_parameters(hf) or {}
    return [parameters, *(value for value in parameters.values() if isinstance(value, Mapping))]


def _kind(parameters: Mapping[str, Any]) -> Any:
    return parameters.get("rope_type", parameters.get("type", "default"))
