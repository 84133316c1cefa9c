"""From the engine's configuration: what can be done right here, and if nothing, one sentence that says why.

How a model rotates its keys is not read here but measured on the loaded model (``self_test.py``); refused by name is
what that test cannot see. Reads the configuration objects by their documented names and imports no engine. Called once
by each connector half.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from semblend.integration.rope_config import immovable_reason

VERIFIED_VERSION: Final = "0.32."
EIGHT_BIT_CACHES: Final = ("fp8", "fp8_e4m3", "fp8_e5m2")
PER_TENSOR_SCALES: Final = 1  # vLLM's ``KVQuantMode``
WORKER_CLASS: Final = "semblend.integration.vllm.worker.SemBlendWorker"


@dataclass(frozen=True, slots=True)
class Support:
    """The verdict. Sizes are those of one rank and are 0 where ``usable`` is False."""

    usable: bool
    reason: str
    head_dim: int = 0
    kv_heads: int = 0
    layers: int = 0
    block_tokens: int = 0
    sparse_forward: bool = False
    sparse_reason: str = ""
    version_note: str = ""
    engine_recovers: bool = False  # the engine computes blocks that are reported as invalid, proven by tests
    experimental: str = ""  # what was not verified on real hardware


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
    experimental_gpu: bool

    @property
    def device_type(self) -> str:
        return str(getattr(getattr(self.config, "device_config", None), "device_type", None))

    @property
    def engine_recovers(self) -> bool:
        """vLLM 0.32 recovers from a failed load on the V1 runner without async scheduling, and nowhere else."""
        is_async = getattr(getattr(self.config, "scheduler_config", None), "async_scheduling", False)
        return not is_async and not getattr(self.config, "use_v2_model_runner", False)

    @property
    def spec(self) -> Any:
        return getattr(self.groups[0], "kv_cache_spec", None) if self.groups else None


def examine(
    vllm_config: Any, kv_cache_config: Any, *, engine_version: str | None = None, experimental_gpu: bool = False
) -> Support:
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
        experimental_gpu=experimental_gpu,
    )
    for check in _CHECKS:
        obstacle = check(deployment)
        if obstacle:
            return Support(usable=False, reason=obstacle, sparse_reason="Nothing is loaded.", version_note=note)
    spec = deployment.spec
    sparse_reason = _without_sparse_forward(deployment)
    return Support(
        usable=True,
        reason="",
        head_dim=spec.head_size,
        kv_heads=spec.num_kv_heads,
        layers=len(deployment.groups[0].layer_names),
        block_tokens=spec.block_size,
        sparse_forward=not sparse_reason,
        sparse_reason=sparse_reason,
        version_note=note,
        engine_recovers=deployment.engine_recovers,
        experimental=""
        if deployment.device_type == "cpu"
        else f"Not verified on a real {deployment.device_type} device.",
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
    if not has_own_worker(deployment.parallel):
        return (
            f"Start the server with --worker-cls {WORKER_CLASS} to compute gaps; without it only prefixes are loaded."
        )
    if getattr(deployment.config, "lora_config", None) is not None:
        return "LoRA is enabled and the sparse forward sets no adapter mappings: only prefixes are loaded."
    return ""


def has_own_worker(parallel_config: Any) -> bool:
    worker = getattr(parallel_config, "worker_cls", None)
    classes = worker.__mro__ if isinstance(worker, type) else ()
    return WORKER_CLASS in {str(worker), *(f"{cls.__module__}.{cls.__qualname__}" for cls in classes)}


def _transfer_role(deployment: _Deployment) -> str | None:
    role = getattr(deployment.transfer, "kv_role", None)
    return (
        None
        if role == "kv_both"
        else f'kv_role is {role!r}: set "kv_both", because every request may be donor and recipient.'
    )


def _recovery(deployment: _Deployment) -> str | None:
    """A load can fail after the engine has accepted the claim. Then the claim is computed, by us or by the engine."""
    missing = _without_sparse_forward(deployment)
    if not missing or deployment.engine_recovers:
        return None
    return (
        f"{missing} With async scheduling or the V2 model runner even these are not loaded, because the engine's own "
        "recovery from a failed load is not reliable there."
    )


def _platform(deployment: _Deployment) -> str | None:
    device = deployment.device_type
    if device == "cpu" or deployment.experimental_gpu:
        return None
    return f"Not verified on a real {device} device: set experimental_gpu to true to use it nevertheless."


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
    ranks = getattr(deployment.parallel, "data_parallel_size", 1)
    if ranks != 1 and getattr(deployment.model, "is_moe", False):
        return f"Experts over {ranks} data-parallel ranks are not supported: all ranks must compute each pass together."
    return None


def _speculation(deployment: _Deployment) -> str | None:
    if getattr(deployment.config, "speculative_config", None) is None:
        return None
    return "Speculative decoding is not supported: draft layers would need donors of their own."


def _attention_kind(deployment: _Deployment) -> str | None:
    model, hf = deployment.model, deployment.hf
    if getattr(model, "is_hybrid", False) or getattr(model, "is_attention_free", False):
        return "Models with recurrent (Mamba, linear attention) layers are not supported."
    if not getattr(hf, "is_causal", True) or getattr(model, "is_mm_prefix_lm", False):
        return "The model attends in both directions: its KV depends on later tokens."
    if getattr(model, "uses_mrope", False):
        return "The model uses multi-axis RoPE (mrope), whose positions are not one number per token."
    return immovable_reason(hf)


def _precision(deployment: _Deployment) -> str | None:
    own = _dtype_name(getattr(deployment.model, "dtype", None))
    asked = str(getattr(deployment.cache, "cache_dtype", None))
    stored = _dtype_name(getattr(deployment.spec, "dtype", None))
    mode = int(getattr(deployment.spec, "kv_quant_mode", 0) or 0)
    if asked in ("auto", own) and stored == own and not mode:
        return None
    latent = type(deployment.spec).__name__ == "MLAAttentionSpec"
    if asked in EIGHT_BIT_CACHES and mode == PER_TENSOR_SCALES and not latent:
        return None
    return (
        f"The KV cache is kept as {asked} ({stored}), the model as {own}: of quantised KV caches only fp8 with one "
        "scale per layer is supported, and not for MLA."
    )


def _groups(deployment: _Deployment) -> str | None:
    is_ours = has_own_worker(deployment.parallel)
    remedy = "." if is_ours else f": --worker-cls {WORKER_CLASS} keeps every token of windowed layers, in one group."
    if len(deployment.groups) != 1:
        return f"The model has {len(deployment.groups)} KV cache groups (hybrid), and one is supported{remedy}"
    if type(deployment.spec).__name__ == "SlidingWindowSpec":
        return f"Layers with a sliding window free their older tokens{remedy}"
    if type(deployment.spec).__name__ not in ("FullAttentionSpec", "MLAAttentionSpec"):
        return (
            f"KV cache of kind {type(deployment.spec).__name__} is not supported: it must hold every token, "
            "and all layers must have one head size."
        )
    spec = deployment.spec
    sizes = (0,) if type(spec).__name__ == "MLAAttentionSpec" else (spec.head_size,)
    if spec.head_size_v not in sizes or spec.tokens_per_state != 1:
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
    if size == asked:
        return None
    return f"The KV cache has blocks of {size} tokens although --block-size is {asked}: this is not supported."


def _dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


_CHECKS: Final[tuple[Callable[[_Deployment], str | None], ...]] = (
    _transfer_role,
    _platform,
    _recovery,
    _task,
    _parallelism,
    _speculation,
    _attention_kind,
    _groups,
    _precision,
    _sharing,
    _blocks,
)
