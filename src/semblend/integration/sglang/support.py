"""From the engine's configuration: whether donor KV can be used here and, if not, one sentence that says why.

How a model rotates its keys is not read here but measured on the loaded model (``self_test.py``); refused by name is
what that test cannot see. Reads configuration objects by their documented names and imports no engine. Called once,
when the cache is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from semblend.integration.core.namespace import text_config
from semblend.integration.rope_config import immovable_reason

VERIFIED_VERSION: Final = "0.5.23"
MLA_POOL: Final = "MLATokenToKVPool"

# What the radix backend overrides or calls. Engines before 0.5.22 have the registry, but admit and publish by other
# methods: overriding these would change nothing there, and KV of another context could enter the tree.
CONTRACT: Final = (
    *("match_prefix", "_match_tree", "init_load_back", "load_back_is_cache_owned", "prefix_device_indices"),
    *("checkpoint", "on_release", "release_aborted_request", "release_host_resources", "reset", "lock", "unlock"),
    "insert",
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
# What differs where replicas share donors through the storage: each backend wants a layout of its own.
SHARED_TIER: Final[dict[str, Any]] = {
    "hicache_mem_layout": ("layer_first", "page_first_direct"),
    "hicache_storage_backend": ("file", "mooncake", "dynamic"),
}
STORAGE_CLASS: Final = "SemBlendStorage"
# Attention backends as read in SGLang 0.5.23: whether a layer writes K and V before it attends, as gaps of one request
# in one pass need it. FlashInfer attends to what the cache holds and writes afterwards, so each gap is a pass there.
# All of them plan a forward pass when it begins, so that the extra pass leaves nothing behind for the engine's own.
WRITES_BEFORE_ATTENDING: Final = {"torch_native": True, "triton": True, "fa3": True, "flashinfer": False}
VERIFIED_BACKENDS: Final = frozenset({"torch_native"})  # by the engine tests, on the CPU


@dataclass(frozen=True, slots=True)
class Support:
    """The verdict; an empty ``reason`` means usable. ``experimental``: what was not verified on real hardware."""

    reason: str
    experimental: str = ""
    one_range_per_pass: bool = False

    @property
    def usable(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class Deployment:
    """The parts the checks look at: what a cache factory is given, resolved."""

    server_args: Any
    model_config: Any
    pool: Any
    has_window_pool: bool
    has_recurrent_state: bool
    has_host_tier: bool
    is_disabled: bool
    shard_size: int
    experimental_gpu: bool = False
    shares_donors: bool = False

    @property
    def device(self) -> str:
        return str(getattr(self.server_args, "device", None))

    @property
    def backend(self) -> str:
        """The attention backend of prefill, which may differ from that of decoding."""
        own = getattr(self.server_args, "prefill_attention_backend", None)
        return str(own or getattr(self.server_args, "attention_backend", None))


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
    device, backend = deployment.device, deployment.backend
    experimental = (
        "" if device == "cpu" else f"Not verified on a real {device} device with the attention backend {backend}."
    )
    return Support("", experimental, not WRITES_BEFORE_ATTENDING[backend])


def contract_gap(cache_class: type) -> str:
    """Why ours cannot subclass the engine's cache; empty if it has every method we rely on."""
    lacking = [name for name in CONTRACT if not callable(getattr(cache_class, name, None))]
    if not lacking:
        return ""
    return f"This SGLang's radix cache has no {', '.join(lacking)}: use {VERIFIED_VERSION}."


def _cache(deployment: Deployment) -> str | None:
    if deployment.is_disabled:
        return "The radix cache is disabled (--disable-radix-cache), so no request can become a donor."
    if deployment.has_recurrent_state:
        return "Models with recurrent (Mamba, linear attention) layers are not supported."
    if deployment.has_window_pool:
        return (
            "The layers with a sliding window keep only their last tokens: start with --disable-hybrid-swa-memory, "
            "which keeps all of them."
        )
    if deployment.has_host_tier:
        if type(deployment.pool).__name__ == MLA_POOL:
            return "The host tier was not verified with MLA: leave out --enable-hierarchical-cache."
        if obstacle := _host_tier(deployment.server_args, deployment.shares_donors):
            return obstacle
    if deployment.shard_size > 1:
        return "Logical-page KV sharding is not supported."
    return None


def _host_tier(server_args: Any, shares_donors: bool) -> str | None:
    """HiCache was tested with these settings; others write at other times or use another page layout. Where donors are
    shared, the storage is the deployment's own, which a self-test examines at the start."""
    for name, verified in (HOST_TIER | SHARED_TIER if shares_donors else HOST_TIER).items():
        value = getattr(server_args, name, None)
        if value != verified and not (isinstance(verified, tuple) and value in verified):
            return f"The host tier was verified only with {name}={verified}, not {value}."
    if shares_donors:
        return None
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
    ("tp_size", 1, "Tensor parallelism, in which every rank plans for itself and all must make the same claim,"),
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
    device, backend = deployment.device, deployment.backend
    if device == "cpu":
        if backend in VERIFIED_BACKENDS:
            return None
        return f"Not verified with the attention backend {backend}; use --attention-backend torch_native."
    if not deployment.experimental_gpu:
        return f"Not verified on a real {device} device: set experimental_gpu to true to use it nevertheless."
    if backend not in WRITES_BEFORE_ATTENDING:
        return f"It is unknown when the attention backend {backend} writes K and V; use --attention-backend triton."
    graphs = getattr(getattr(deployment.server_args, "cuda_graph_config", None), "prefill", None)
    if getattr(graphs, "backend", None) != "disabled":
        return "Prefill through CUDA graphs was not verified: add --cuda-graph-backend-prefill=disabled."
    return None


def _model(deployment: Deployment) -> str | None:
    model = deployment.model_config
    if not getattr(model, "is_generation", True):
        return "Only text generation is supported."
    if getattr(model, "is_multimodal", False) or getattr(model, "is_encoder_decoder", False):
        return "Multimodal and encoder-decoder models are not supported."
    return immovable_reason(text_config(model))


def _pool(deployment: Deployment) -> str | None:
    pool = deployment.pool
    kind = type(pool).__name__
    if kind != MLA_POOL and (kind != "MHATokenToKVPool" or getattr(pool, "kv_cache_layout", None) != "nhd"):
        return f"KV pool {kind} ({getattr(pool, 'kv_cache_layout', None)}) is not supported."
    if pool.store_dtype != pool.dtype or not pool.dtype.is_floating_point or pool.dtype.itemsize < 2:
        return f"A KV cache kept as {pool.dtype} ({pool.store_dtype}) is not supported."
    if kind == MLA_POOL:
        return "Sparse attention (DSA) is not supported." if pool.use_dsa else None
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
