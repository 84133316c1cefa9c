"""From the engine's configuration: can donors' KV be used here, and if not, one sentence that says why.

Reads configuration objects by their documented names and imports no engine. Called once, when the cache is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from semblend.integration.rotary import read_rope

VERIFIED_VERSION: Final = "0.5.23"

# Each read in SGLang 0.5.23: all layers rotate K by plain half-split RoPE, by one table of angles.
ROTATED_ARCHITECTURES: Final = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)
# Backends that write K and V of a layer before they attend, as the extra pass needs.
VERIFIED_BACKENDS: Final = frozenset({"torch_native"})


@dataclass(frozen=True, slots=True)
class Support:
    """The verdict; an empty ``reason`` means usable."""

    reason: str
    rope_theta: float = 0.0
    rotary_dim: int = 0
    version_note: str = ""

    @property
    def usable(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class Deployment:
    """The parts the checks look at: what a cache factory is given, resolved."""

    server_args: Any
    model_config: Any
    pool: Any
    is_hybrid: bool
    has_host_tier: bool
    is_disabled: bool
    shard_size: int


def examine(deployment: Deployment, engine_version: str | None) -> Support:
    """The first obstacle found is the reason."""
    note = version_note(engine_version)
    for check in _CHECKS:
        obstacle = check(deployment)
        if obstacle:
            return Support(obstacle, version_note=note)
    model = deployment.model_config
    hf = getattr(model, "hf_text_config", None) or getattr(model, "hf_config", None)
    rope = read_rope(hf, deployment.pool.head_dim)
    if isinstance(rope, str):
        return Support(rope, version_note=note)
    return Support("", rope.theta, rope.rotary_dim, note)


def version_note(version: str | None) -> str:
    """A warning for engines this adapter was not run against; empty for those it was."""
    if version == VERIFIED_VERSION:
        return ""
    return (
        f"SemBlend was verified with SGLang {VERIFIED_VERSION} and meets {version or 'an unknown version'}: "
        "run the engine tests before trusting it."
    )


def _cache(deployment: Deployment) -> str | None:
    if deployment.is_disabled:
        return "The radix cache is disabled (--disable-radix-cache): there are no donors."
    if deployment.is_hybrid:
        return "Models with sliding windows or recurrent layers are not supported."
    if deployment.has_host_tier:
        return "The host tier (--enable-hierarchical-cache) owns load-backs of its own; not verified together."
    if deployment.shard_size > 1:
        return "Logical-page KV sharding is not supported."
    return None


def _flags(deployment: Deployment) -> str | None:
    args = deployment.server_args
    for name, harmless, title in _REFUSED_FLAGS:
        value = getattr(args, name, harmless)
        if value not in (harmless, None, False):
            return f"{title} ({name}={value}) was not verified."
    return None


# Option of the server, the value that means "not used", and what it is called.
_REFUSED_FLAGS: Final = (
    ("tp_size", 1, "Tensor parallelism"),
    ("pp_size", 1, "Pipeline parallelism"),
    ("dp_size", 1, "Data parallelism"),
    ("speculative_algorithm", None, "Speculative decoding"),
    ("disaggregation_mode", "null", "Disaggregated serving"),
    ("enable_mixed_chunk", False, "Mixing decode rows into prefill"),
    ("enable_two_batch_overlap", False, "Two-batch overlap"),
    ("enable_pdmux", False, "Prefill-decode multiplexing"),
    ("enable_lora", False, "LoRA"),
    ("dllm_algorithm", None, "Diffusion decoding"),
    ("enable_streaming_session", False, "Streaming sessions"),
    ("enable_lmcache", False, "LMCache"),
    ("enable_flexkv", False, "FlexKV"),
    ("enable_unified_cache_external_linker", False, "An external cache linker"),
)


def _platform(deployment: Deployment) -> str | None:
    device = getattr(deployment.server_args, "device", None)
    if device != "cpu":
        return f"Not verified on this platform ({device}): only the CPU is."
    backend = getattr(deployment.server_args, "attention_backend", None)
    if backend not in VERIFIED_BACKENDS:
        return f"Not verified with the attention backend {backend}; verified: {', '.join(sorted(VERIFIED_BACKENDS))}."
    return None


def _model(deployment: Deployment) -> str | None:
    model = deployment.model_config
    if not getattr(model, "is_generation", True):
        return "Only text generation is supported."
    if getattr(model, "is_multimodal", False) or getattr(model, "is_encoder_decoder", False):
        return "Multimodal and encoder-decoder models are not supported."
    names = getattr(getattr(model, "hf_config", None), "architectures", None) or ()
    if not names or names[0] not in ROTATED_ARCHITECTURES:
        known = ", ".join(sorted(ROTATED_ARCHITECTURES))
        return (
            f"The architecture {names[0] if names else None} was not verified to rotate keys alike; verified: {known}."
        )
    if getattr(model, "sliding_window_size", None):
        return "Sliding window attention is not supported."
    return None


def _pool(deployment: Deployment) -> str | None:
    pool = deployment.pool
    if type(pool).__name__ != "MHATokenToKVPool" or getattr(pool, "kv_cache_layout", None) != "nhd":
        return f"KV pool {type(pool).__name__} ({getattr(pool, 'kv_cache_layout', None)}) is not supported."
    if pool.store_dtype != pool.dtype or not pool.dtype.is_floating_point or pool.dtype.itemsize < 2:
        return f"A KV cache kept as {pool.dtype} ({pool.store_dtype}) is not supported."
    if pool.head_dim != pool.v_head_dim:
        return "Keys and values of different sizes are not supported."
    return None


_CHECKS: Final[tuple[Callable[[Deployment], str | None], ...]] = (_cache, _flags, _platform, _model, _pool)
