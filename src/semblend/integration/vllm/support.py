"""From the engine's configuration: what can be done right here, and if nothing, one sentence that says why.

Reads the configuration objects by their documented names and imports no engine. Called once by each connector half.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from semblend.integration.rotary import read_rope, rope_parameters

VERIFIED_VERSION: Final = "0.32."
WORKER_CLASS: Final = "semblend.integration.vllm.worker.SemBlendWorker"
CPU_KERNEL_BLOCK_TOKENS: Final = 32  # the CPU attention kernels split what is not a multiple of it

# Each read in vLLM 0.32.0: all layers rotate K by plain half-split RoPE, after any QK norm, by one table of angles.
ROTATED_ARCHITECTURES: Final = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)


@dataclass(frozen=True, slots=True)
class Support:
    """The verdict. Sizes are those of one rank and are 0 where ``usable`` is False."""

    usable: bool
    reason: str
    rope_theta: float | None = None
    rotary_dim: int | None = None
    head_dim: int = 0
    kv_heads: int = 0
    layers: int = 0
    block_tokens: int = 0
    sparse_forward: bool = False
    sparse_reason: str = ""
    version_note: str = ""


@dataclass(frozen=True, slots=True)
class _Deployment:
    """The parts the checks look at, so that each check is one line of knowledge."""

    config: Any
    model: Any
    hf: Any
    parallel: Any
    cache: Any
    transfer: Any
    groups: tuple[Any, ...]

    @property
    def spec(self) -> Any:
        return getattr(self.groups[0], "kv_cache_spec", None) if self.groups else None


def examine(vllm_config: Any, kv_cache_config: Any, *, engine_version: str | None = None) -> Support:
    """Whether donors' KV can be used under this configuration. The first obstacle found is the reason."""
    note = version_note(engine_version or getattr(sys.modules.get("vllm"), "__version__", None))
    model = vllm_config.model_config
    deployment = _Deployment(
        config=vllm_config,
        model=model,
        hf=getattr(model, "hf_text_config", None) or getattr(model, "hf_config", None),
        parallel=vllm_config.parallel_config,
        cache=vllm_config.cache_config,
        transfer=getattr(vllm_config, "kv_transfer_config", None),
        groups=tuple(getattr(kv_cache_config, "kv_cache_groups", None) or ()),
    )
    for check in _CHECKS:
        obstacle = check(deployment)
        if obstacle:
            return Support(usable=False, reason=obstacle, sparse_reason="Nothing is loaded.", version_note=note)
    spec = deployment.spec
    rope = read_rope(deployment.hf, spec.head_size)
    if isinstance(rope, str):
        return Support(usable=False, reason=rope, sparse_reason="Nothing is loaded.", version_note=note)
    sparse_reason = _without_sparse_forward(deployment)
    return Support(
        usable=True,
        reason="",
        rope_theta=rope.theta,
        rotary_dim=rope.rotary_dim,
        head_dim=spec.head_size,
        kv_heads=spec.num_kv_heads,
        layers=len(deployment.groups[0].layer_names),
        block_tokens=spec.block_size,
        sparse_forward=not sparse_reason,
        sparse_reason=sparse_reason,
        version_note=note,
    )


def version_note(version: str | None) -> str:
    """A warning for engines this adapter was not run against; empty for those it was."""
    if version is not None and version.startswith(VERIFIED_VERSION):
        return ""
    return (
        f"SemBlend was verified with vLLM {VERIFIED_VERSION}x, this is {version or 'an unknown version'}: "
        "run the engine tests before trusting it."
    )


def _without_sparse_forward(deployment: _Deployment) -> str:
    """Why gaps cannot be computed, so that only prefix-shaped loads remain; empty when they can."""
    if WORKER_CLASS not in _class_names(getattr(deployment.parallel, "worker_cls", None)):
        return (
            f"Start the server with --worker-cls {WORKER_CLASS} to compute gaps; without it only prefixes are loaded."
        )
    if getattr(deployment.config, "lora_config", None) is not None:
        return "LoRA is enabled and the sparse forward sets no adapter mappings: only prefixes are loaded."
    if getattr(deployment.config, "use_v2_model_runner", False):
        return "The V2 model runner is in use and was not verified: only prefixes are loaded."
    return ""


def _class_names(worker: Any) -> set[str]:
    if isinstance(worker, type):
        return {f"{cls.__module__}.{cls.__qualname__}" for cls in worker.__mro__}
    return {str(worker)}


def _transfer_role(deployment: _Deployment) -> str | None:
    role = getattr(deployment.transfer, "kv_role", None)
    return (
        None
        if role == "kv_both"
        else f'kv_role is {role!r}: set "kv_both", because every request may be donor and recipient.'
    )


def _failure_policy(deployment: _Deployment) -> str | None:
    policy = getattr(deployment.transfer, "kv_load_failure_policy", None)
    if policy == "recompute":
        return None
    return f'kv_load_failure_policy is {policy!r}: set "recompute"; otherwise a failed load fails its request.'


def _platform(deployment: _Deployment) -> str | None:
    device = getattr(getattr(deployment.config, "device_config", None), "device_type", None)
    return None if device == "cpu" else f"Not verified on this platform ({device}): only the CPU backend is."


def _task(deployment: _Deployment) -> str | None:
    model = deployment.model
    if getattr(model, "runner_type", None) != "generate":
        return f"The runner is {getattr(model, 'runner_type', None)!r}: only text generation is supported."
    if getattr(model, "is_encoder_decoder", False):
        return "Encoder-decoder models are not supported."
    if getattr(model, "is_multimodal_model", False):
        return "Multimodal models are not supported: equal token ids do not mean equal images."
    return None


def _parallelism(deployment: _Deployment) -> str | None:
    for name, title in (
        ("pipeline_parallel_size", "Pipeline parallelism"),
        ("decode_context_parallel_size", "Decode context parallelism"),
        ("prefill_context_parallel_size", "Prefill context parallelism"),
    ):
        size = getattr(deployment.parallel, name, 1)
        if size != 1:
            return f"{title} of {size} is not supported."
    return None


def _speculation(deployment: _Deployment) -> str | None:
    if getattr(deployment.config, "speculative_config", None) is None:
        return None
    return "Speculative decoding is not supported: draft layers would need donors of their own."


def _attention_kind(deployment: _Deployment) -> str | None:
    model, hf = deployment.model, deployment.hf
    if getattr(model, "use_mla", False):
        return "MLA models store latent vectors, not K and V: not supported."
    if getattr(model, "is_hybrid", False) or getattr(model, "is_attention_free", False):
        return "Models with recurrent (Mamba, linear attention) layers are not supported."
    if getattr(model, "uses_alibi", False):
        return "The model uses ALiBi instead of RoPE: not supported."
    if not getattr(hf, "is_causal", True):
        return "The model attends in both directions: its KV depends on later tokens."
    if getattr(model, "attention_chunk_size", None):
        return "Chunked local attention is not supported."
    return None


def _window(deployment: _Deployment) -> str | None:
    window = getattr(deployment.cache, "sliding_window", None) or getattr(deployment.spec, "sliding_window", None)
    if window or "sliding_attention" in (getattr(deployment.hf, "layer_types", None) or ()):
        return f"Sliding window attention (window {window or 'per layer'}) is not supported."
    return None


def _architecture(deployment: _Deployment) -> str | None:
    model, hf = deployment.model, deployment.hf
    if any(not rotated for rotated in getattr(hf, "no_rope_layers", None) or ()):
        return "Some layers of the model have no RoPE (no_rope_layers): one rotation for all layers would be wrong."
    if rope_parameters(hf) is None:
        return "The model declares no RoPE: KV at absolute positions cannot be moved."
    name = getattr(model, "architecture", None)
    if name not in ROTATED_ARCHITECTURES or getattr(model, "model_class_overrides", None):
        known = ", ".join(sorted(ROTATED_ARCHITECTURES))
        return f"The architecture {name} was not verified to rotate all keys in the same way; verified: {known}."
    return None


def _precision(deployment: _Deployment) -> str | None:
    own = _dtype_name(getattr(deployment.model, "dtype", None))
    asked = str(getattr(deployment.cache, "cache_dtype", None))
    stored = _dtype_name(getattr(deployment.spec, "dtype", None))
    if asked not in ("auto", own) or stored != own or int(getattr(deployment.spec, "kv_quant_mode", 0) or 0):
        return f"The KV cache is kept as {asked} ({stored}), the model as {own}: a quantised KV cache is not supported."
    return None


def _groups(deployment: _Deployment) -> str | None:
    if len(deployment.groups) != 1:
        return f"The model has {len(deployment.groups)} KV cache groups (hybrid); exactly one is supported."
    if type(deployment.spec).__name__ != "FullAttentionSpec":
        return f"KV cache of kind {type(deployment.spec).__name__} is not supported, only full attention."
    spec = deployment.spec
    if spec.head_size_v != spec.head_size or spec.tokens_per_state != 1:
        return "Keys and values of different sizes, or several tokens per state, are not supported."
    return None


def _sharing(deployment: _Deployment) -> str | None:
    layers = deployment.model.get_num_layers(deployment.parallel)
    stored = len(deployment.groups[0].layer_names)
    shared = getattr(deployment.hf, "num_kv_shared_layers", 0) or getattr(
        deployment.cache, "kv_sharing_fast_prefill", 0
    )
    if stored == layers and not shared:
        return None
    return f"{stored} of {layers} layers keep KV of their own; layers that share KV are not supported."


def _blocks(deployment: _Deployment) -> str | None:
    size, asked = deployment.spec.block_size, getattr(deployment.cache, "block_size", None)
    if size == asked and size % CPU_KERNEL_BLOCK_TOKENS == 0:
        return None
    return (
        f"Blocks of {size} tokens (requested: {asked}) differ from the kernels' block size: "
        f"set --block-size to a multiple of {CPU_KERNEL_BLOCK_TOKENS}."
    )


def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


_CHECKS: Final[tuple[Callable[[_Deployment], str | None], ...]] = (
    _transfer_role,
    _failure_policy,
    _platform,
    _task,
    _parallelism,
    _speculation,
    _attention_kind,
    _window,
    _architecture,
    _groups,
    _precision,
    _sharing,
    _blocks,
)
