from contextlib import AbstractContextManager
from typing import Any

import torch
from vllm.config import CUDAGraphMode, VllmConfig

class BatchDescriptor: ...

class ForwardContext:
    no_compile_layers: dict[str, Any]
    attn_metadata: Any
    slot_mapping: Any
    cudagraph_runtime_mode: CUDAGraphMode

def get_forward_context() -> ForwardContext: ...
def is_forward_context_available() -> bool: ...
def set_forward_context(
    attn_metadata: Any,
    vllm_config: VllmConfig,
    num_tokens: int | None = None,
    num_tokens_across_dp: torch.Tensor | None = None,
    cudagraph_runtime_mode: CUDAGraphMode = ...,
    batch_descriptor: BatchDescriptor | None = None,
    ubatch_slices: Any | None = None,
    slot_mapping: dict[str, torch.Tensor] | list[dict[str, torch.Tensor]] | None = None,
    skip_compiled: bool = False,
    is_padding: torch.Tensor | None = None,
) -> AbstractContextManager[None]: ...
