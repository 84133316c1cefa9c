"""Plain torch versions of the kernels that FlashAttention's Python side calls, strict about their contracts.

A launch must carry the schedule of its own batch, and tensors of the types, shapes and strides that the CUDA kernels
take for granted. What would be undefined output on a GPU raises ``KernelContractError`` here.
"""

from __future__ import annotations

import copy
from typing import Any, Final

import torch
from tests.engines.gpusim.configuration import Backend
from tests.engines.gpusim.engine import engine_module

_SCHEDULE_SLOTS: Final = 4  # integers per sequence in FlashAttention 3's schedule, after one for a semaphore
_installed: list[Any] = []


class KernelContractError(RuntimeError):
    """A launch whose result would be undefined on a GPU."""


def require(holds: bool, message: str) -> None:
    if not holds:
        raise KernelContractError(message)


def get_scheduler_metadata(
    batch_size: int, cache_seqlens: torch.Tensor, cu_seqlens_q: torch.Tensor, **_: Any
) -> torch.Tensor:
    """FlashAttention 3's schedule made ahead of time; this one says which batch it was made for."""
    require(cache_seqlens.shape == (batch_size,), "a schedule needs one length per sequence")
    require(cu_seqlens_q.shape == (batch_size + 1,), "a schedule needs the start of every query and the end")
    require_integers(cache_seqlens=cache_seqlens, cu_seqlens_q=cu_seqlens_q)
    schedule = torch.zeros(1 + -(-batch_size // 4) * 4 * _SCHEDULE_SLOTS, dtype=torch.int32)
    rows = schedule[1:].view(-1, _SCHEDULE_SLOTS)[:batch_size]
    rows[:, 0], rows[:, 1] = cu_seqlens_q.diff(), cache_seqlens
    return schedule


def require_integers(**tensors: torch.Tensor) -> None:
    for name, tensor in tensors.items():
        require(tensor.dtype == torch.int32, f"{name} is {tensor.dtype}; the kernel reads 32-bit integers")
        require(tensor.stride(-1) == 1, f"{name} is not contiguous")


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    max_seqlen_q: int,
    cu_seqlens_q: torch.Tensor,
    max_seqlen_k: int,
    seqused_k: torch.Tensor,
    block_table: torch.Tensor,
    softmax_scale: float,
    causal: bool,
    out: torch.Tensor,
    scheduler_metadata: torch.Tensor | None = None,
    fa_version: int = 2,
    **_: Any,
) -> torch.Tensor:
    require_integers(cu_seqlens_q=cu_seqlens_q, seqused_k=seqused_k, block_table=block_table)
    require(q.stride(-1) == k.stride(-1) == v.stride(-1) == 1, "the head dimension is not contiguous")
    require(causal is True, "only causal attention is simulated")
    rows = seqused_k.shape[0]
    lengths = cu_seqlens_q.diff()
    require(block_table.shape[0] == lengths.shape[0] == rows, "block table, query starts and lengths differ in rows")
    require(int(lengths.max()) <= max_seqlen_q, "a query is longer than max_seqlen_q")
    require(int(seqused_k.max()) <= max_seqlen_k, "a context is longer than max_seqlen_k")
    require(int(cu_seqlens_q[-1]) <= q.shape[0], "there are fewer queries than the query starts say")
    if scheduler_metadata is not None:
        require(fa_version == 3, "only FlashAttention 3 takes a schedule")
        made_for = scheduler_metadata[1:].view(-1, _SCHEDULE_SLOTS)[:rows]
        fits = len(made_for) == rows and torch.equal(made_for[:, 0], lengths)
        require(fits and torch.equal(made_for[:, 1], seqused_k), "launched with the schedule of another batch")
    page = k.shape[1]
    for row, length in enumerate(seqused_k.tolist()):
        queries = slice(int(cu_seqlens_q[row]), int(cu_seqlens_q[row + 1]))
        if queries.start == queries.stop:
            continue
        pages = block_table[row, : -(-length // page)].long()
        keys, values = (side[pages].flatten(0, 1)[:length] for side in (k, v))
        out[queries] = attend(q[queries], keys, values, softmax_scale)
    return out


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Causal attention of the last ``len(queries)`` positions of a sequence, fp32 inside."""
    count, heads, _ = queries.shape
    group = heads // keys.shape[1]
    wide_keys, wide_values = (side.float().repeat_interleave(group, dim=1) for side in (keys, values))
    scores = torch.einsum("qhd,thd->hqt", queries.float(), wide_keys) * scale
    positions = torch.arange(len(keys))
    scores.masked_fill_(positions[None, :] > positions[-count:, None], float("-inf"))
    return torch.einsum("hqt,thd->qhd", scores.softmax(dim=-1), wide_values).to(queries.dtype)


def reshape_and_cache_flash(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    require(
        slot_mapping.dtype == torch.int64, f"slot_mapping is {slot_mapping.dtype}; the kernel reads 64-bit integers"
    )
    require(kv_cache_dtype == "auto" or key.dtype == key_cache.dtype, "quantised caches are not simulated")
    require(len(slot_mapping) <= len(key) == len(value), "there are fewer rows than slots")
    page = key_cache.shape[1]
    require(int(slot_mapping.max()) < key_cache.shape[0] * page, "a slot beyond the cache")
    written = (slot_mapping >= 0).nonzero().flatten()  # padding has slot -1
    blocks, offsets = slot_mapping[written] // page, slot_mapping[written] % page
    key_cache[blocks, offsets] = key[written].to(key_cache.dtype)
    value_cache[blocks, offsets] = value[written].to(value_cache.dtype)


def install(backend: Backend) -> None:
    """Put the kernels where the engine's backends look for them. Called before a backend is imported."""
    if _installed:
        return
    _installed.append(backend)
    torch.cuda.get_device_capability = lambda *_, **__: backend.capability
    if backend is Backend.FLASHINFER:
        _install_flashinfer()
    elif backend is not Backend.TRITON:
        _install_flash_attention(3 if backend is Backend.FLASH_ATTENTION_3 else 2)


def _install_flashinfer() -> None:
    library = torch.library.Library("_C_cache_ops", "FRAGMENT")
    library.define(
        "reshape_and_cache_flash(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
        "Tensor slot_mapping, str kv_cache_dtype, Tensor k_scale, Tensor v_scale) -> ()"
    )
    library.impl("reshape_and_cache_flash", reshape_and_cache_flash, "CPU")
    _installed.append(library)  # registrations end with their library
    utilities = engine_module("utils.flashinfer")
    utilities.pin_host_range_buf = lambda *_, **__: None
    utilities.has_nvidia_artifactory = lambda: False


def _install_flash_attention(version: int) -> None:
    utilities = engine_module("v1.attention.backends.fa_utils")
    utilities.flash_attn_varlen_func = flash_attn_varlen_func
    utilities.get_scheduler_metadata = get_scheduler_metadata
    utilities.reshape_and_cache_flash = reshape_and_cache_flash
    utilities.compile_flash_attn_varlen_func_from_specs = None
    utilities.is_flash_attn_varlen_func_available = lambda: True
    utilities.get_flash_attn_version = lambda *_, **__: version
    utilities.flash_attn_supports_quant_query_input = lambda: False
    utilities.flash_attn_supports_kv_cache_dtype = lambda *_, **__: True
    utilities.is_fa_version_supported = lambda asked, *_: asked == version
    utilities.flash_attn_supports_sinks = lambda: False
    if version == 3:
        builder = engine_module("v1.attention.backends.flash_attn").FlashAttentionMetadataBuilder
        builder.__init__ = _as_with_full_graphs(builder.__init__)


def _as_with_full_graphs(original: Any) -> Any:
    """On a GPU the engine captures full CUDA graphs, for which the builder keeps one schedule buffer for all batches.

    Capturing is impossible here, so only the builder sees full graphs; the buffer is its own code's.
    """
    modes = engine_module("config").CUDAGraphMode

    def init(self: Any, kv_cache_spec: Any, layer_names: Any, vllm_config: Any, device: Any) -> None:
        pretended = copy.copy(vllm_config)
        pretended.compilation_config = copy.copy(vllm_config.compilation_config)
        pretended.compilation_config.cudagraph_mode = modes.FULL_AND_PIECEWISE
        pretended.compilation_config.max_cudagraph_capture_size = vllm_config.scheduler_config.max_num_batched_tokens
        original(self, kv_cache_spec, layer_names, pretended, device)

    return init
