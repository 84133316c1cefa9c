"""From the engine's configuration: whether donor KV can be used here and, if not, one sentence that says why.

Reads configuration objects by their documented names and imports no engine. Called once, when the cache is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from semblend.integration.rotary import read_rope

VERIFIED_VERSION: Final = "0.5.23"

# What the radix backend overrides or calls. Engines before 0.5.22 have the registry, but admit and publish by other
# methods: overriding these would change nothing there, and KV of another context could enter the tree.
CONTRACT: Final = (
    *("match_prefix", "_match_tree", "init_load_back", "load_back_is_cache_owned", "prefix_device_indices"),
    *("checkpoint", "on_release", "release_aborted_request", "release_host_resources", "reset", "lock", "unlock"),
)

# Each read in SGLang 0.5.23: all layers rotate K by plain half-split RoPE, by one table of angles.
ROTATED_ARCHITECTURES: Final = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
)
# The settings of --enable-hierarchical-cache the adapter was tested with.
HOST_TIER: Final = {
    "hicache_host_memory_mode": "cache",
    "hicache_write_policy": "write_through",
    "hicache_io_backend": "direct",
    "hicache_mem_layout": "layer_first",
    "hicache_storage_backend": "dynamic",
    "hicache_storage_prefetch_policy": "wait_complete",
}
STORAGE_CLASS: Final = "SemBlendStorage"
# Backends that write K and V of a layer before they attend, as the extra pass needs.
VERIFIED_BACKENDS: Final = frozenset({"torch_native"})


@dataclass(frozen=True, slots=True)
class Support:
    """The verdict; an empty ``reason`` means usable."""

    reason: str
    rope_theta: float = 0.0
    rotary_dim: int = 0

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


def examine(deployment: Deployment, engine_version: str | None, validated_version: str = "") -> Support:
    """The first obstacle found is the reason. ``validated_version``: one that the deployment has tested."""
    if engine_version not in (VERIFIED_VERSION, validated_version or VERIFIED_VERSION):
        return Support(
            f"SemBlend was verified with SGLang {VERIFIED_VERSION}, this is {engine_version or 'an unknown version'}: "
            "run the engine tests on it, then set the option validated_version to it."
        )
    for check in _CHECKS:
        obstacle = check(deployment)
        if obstacle:
            return Support(obstacle)
    model = deployment.model_config
    hf = getattr(model, "hf_text_config", None) or getattr(model, "hf_config", None)
    rope = read_rope(hf, deployment.pool.head_dim)
    if isinstance(rope, str):
        return Support(rope)
    return Support("", rope.theta, rope.rotary_dim)


def contract_gap(cache_class: type) -> str:
    """Why ours cannot subclass the engine's cache; empty if it has every method we rely on."""
    lacking = [name for name in CONTRACT if not callable(getattr(cache_class, name, None))]
    if not lacking:
        return ""
    return f"This SGLang's radix cache has no {', '.join(lacking)}: use {VERIFIED_VERSION}."


def _cache(deployment: Deployment) -> str | None:
    if deployment.is_disabled:
        return "The radix cache is disabled (--disable-radix-cache), so no request can become a donor."
    if deployment.is_hybrid:
        return "Models with sliding windows or recurrent layers are not supported."
    if deployment.has_host_tier and (obstacle := _host_tier(deployment.server_args)):
        return obstacle
    if deployment.shard_size > 1:
        return "Logical-page KV sharding is not supported."
    return None


def _host_tier(server_args: Any) -> str | None:
    """HiCache was tested with these settings; others write at other times or use another page layout."""
    for name, verified in HOST_TIER.items():
        if (value := getattr(server_args, name, None)) != verified:
            return f"The host tier was verified only with {name}={verified}, not {value}."
    if STORAGE_CLASS not in str(getattr(server_args, "hicache_storage_backend_extra_config", None)):
        return f"The host tier was verified only with {STORAGE_CLASS} as its storage: name it on the command line."
    return None


def _flags(deployment: Deployment) -> str | None:
    args = deployment.server_args
    for name, harmless, title in _REFUSED_FLAGS:
        value = getattr(args, name, _UNKNOWN)
        if value is _UNKNOWN:
            return f"This SGLang has no setting {name}: it is unknown whether {title} is used."
        if value not in (harmless, None, False):
            return f"{title} ({name}={value}) was not verified."
    return None


_UNKNOWN: Final = object()
# Option of the server, the value that means "not used", and what it is called.
_REFUSED_FLAGS: Final = (
    ("tp_size", 1, "Tensor parallelism"),
    ("pp_size", 1, "Pipeline parallelism"),
    ("dp_size", 1, "Data parallelism"),
    ("tokenizer_worker_num", 1, "Several tokenizer processes, which may give two living requests one id"),
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
        name = names[0] if names else None
        return f"The architecture {name} was not verified to rotate all keys in the same way; verified: {known}."
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


# Requests that loaded KV cannot serve: an attribute of the engine's request, and what having it means.
_OBSTACLES: Final = (
    ("multimodal_inputs", "images or audio: equal tokens do not mean equal content"),
    ("input_embeds", "embeddings instead of tokens"),
    ("positional_embed_overrides", "overridden embeddings"),
    ("lora_id", "a LoRA adapter"),
    ("session", "a session that keeps its KV"),
    ("beam_group", "beam search"),
    ("dllm_config", "diffusion decoding"),
    ("token_type_ids", "token types"),
    ("return_routed_experts", "routed experts of every position were requested"),
    ("return_indexer_topk", "indexer scores of every position were requested"),
    ("return_pooled_hidden_states", "pooled hidden states were requested"),
    ("token_indices_to_pool", "pooled hidden states were requested"),
    ("multi_item_delimiter_indices", "several items to score at once"),
)


def obstacle_of(req: Any) -> str:
    """Why this request cannot be served with loaded KV; empty if it can."""
    for name, meaning in _OBSTACLES:
        value = getattr(req, name, None)
        if value is not None and value is not False:
            return f"the request has {meaning}" if not meaning.endswith("requested") else meaning
    if getattr(req, "return_hidden_states", False):
        return "hidden states of every position were requested"
    return ""
