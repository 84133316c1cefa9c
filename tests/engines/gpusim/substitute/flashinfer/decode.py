"""The engine plans decodes through this function, with a wrapper as its first argument."""

from __future__ import annotations

from typing import Any

import torch


def fast_decode_plan(
    wrapper: Any, indptr: torch.Tensor, indices: torch.Tensor, last_page_len: torch.Tensor, *rest: Any, **named: Any
) -> None:
    wrapper.plan(indptr, indices, last_page_len, *rest, **named)


def trtllm_batch_decode_with_kv_cache(*_: Any, **__: Any) -> None:
    raise NotImplementedError("the engine uses it on compute capability 10 only")
