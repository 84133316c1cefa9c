"""A stand-in for FlashInfer: its plan and run contract with plain torch inside.

A wrapper keeps the page table it was planned with by reference, as the real one does. A run with the plan of another
batch, or after its page table was overwritten, is undefined on a GPU and raises here.
"""

from __future__ import annotations

from typing import Any

import torch
from tests.engines.gpusim.kernels import attend, require, require_integers


def get_seq_lens(indptr: torch.Tensor, last_page_len: torch.Tensor, page_size: int) -> torch.Tensor:
    return (indptr.diff() - 1).clamp(min=0) * page_size + last_page_len


class _PagedWrapper:
    """What prefill and decode have in common; attributes with an underscore are read by the engine's backend."""

    def __init__(self, workspace: torch.Tensor, kv_layout: str = "NHD", use_cuda_graph: bool = False, **_: Any) -> None:
        self._is_head_major = kv_layout == "HND"
        self.is_cuda_graph_enabled = use_cuda_graph

    def _plan(
        self,
        query_starts: torch.Tensor,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        page_size: int,
        sm_scale: float,
        window_left: int,
        logits_soft_cap: float | None,
    ) -> None:
        require_integers(indptr=indptr, indices=indices, last_page_len=last_page_len)
        require(len(query_starts) == len(indptr) == len(last_page_len) + 1, "the plan's parts differ in rows")
        self._query_starts = query_starts.tolist()
        self._page_starts = indptr.tolist()
        self._indices, self._planned_indices = indices, indices[: self._page_starts[-1]].clone()
        self._lengths = get_seq_lens(indptr.clone(), last_page_len, page_size).tolist()
        self._causal, self._sm_scale, self._window_left = True, sm_scale, window_left
        self._logits_soft_cap = logits_soft_cap or 0.0

    def run(self, q: torch.Tensor, paged_kv_cache: Any, *, out: torch.Tensor, **_: Any) -> torch.Tensor:
        require(q.shape[0] == self._query_starts[-1], "run with the plan of another batch")
        pages = self._indices[: self._page_starts[-1]]
        require(torch.equal(pages, self._planned_indices), "the page table of the plan was overwritten before the run")
        sides = [side.transpose(1, 2) if self._is_head_major else side for side in paged_kv_cache]
        for row, length in enumerate(self._lengths):
            queries = slice(self._query_starts[row], self._query_starts[row + 1])
            if not length or queries.start == queries.stop:
                continue
            own = pages[self._page_starts[row] : self._page_starts[row + 1]].long()
            keys, values = (side[own].flatten(0, 1)[:length] for side in sides)
            out[queries] = attend(q[queries], keys, values, self._sm_scale).to(out.dtype)
        return out


class BatchPrefillWithPagedKVCacheWrapper(_PagedWrapper):
    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        page_size: int,
        causal: bool,
        sm_scale: float,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        **_: Any,
    ) -> None:
        require(causal, "only causal attention is simulated")
        self._plan(
            qo_indptr,
            paged_kv_indptr,
            paged_kv_indices,
            paged_kv_last_page_len,
            page_size,
            sm_scale,
            window_left,
            logits_soft_cap,
        )


class BatchDecodeWithPagedKVCacheWrapper(_PagedWrapper):
    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        page_size: int,
        sm_scale: float,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        **_: Any,
    ) -> None:
        rows = torch.arange(len(last_page_len) + 1)
        self._plan(rows, indptr, indices, last_page_len, page_size, sm_scale, window_left, logits_soft_cap)


class BatchAttentionWithAttentionSinkWrapper(_PagedWrapper):
    """Imported by the engine; not used by models without sinks."""


class BatchPrefillWithRaggedKVCacheWrapper(_PagedWrapper):
    """Imported by the engine; used with context parallelism only."""


def nvfp4_quantize_append_paged_kv_cache_with_slot_mapping(*_: Any, **__: Any) -> None:
    raise NotImplementedError("quantised caches are not simulated")
