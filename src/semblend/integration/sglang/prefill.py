"""A prompt, or the next tokens of one, computed by the engine's model in slots of ours, outside of its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode

# The first row of the engine's table of slots belongs to no request: the engine pads batches with it.
_PADDING_ROW: Final = 0


class Prefill:
    """``after_forward`` makes this stream wait for the engine's pass in flight."""

    def __init__(self, runner: Any, after_forward: Callable[[], None] = lambda: None) -> None:
        self._runner = runner
        self._after_forward = after_forward

    def compute(self, token_ids: NDArray[np.int64], slots: torch.Tensor, *, shift: int = 0) -> Any:
        """Compute ``token_ids`` in the last of ``slots``; those before them hold the KV of their prefix.

        They are rotated to ``shift`` positions after their place in the sequence.
        """
        self._after_forward()
        table = self._runner.req_to_token_pool.req_to_token
        table[_PADDING_ROW, : len(slots)] = slots.to(table)
        try:
            return self._runner.forward(self._batch(token_ids, slots, shift))
        finally:
            table[_PADDING_ROW, : len(slots)] = 0

    def _batch(self, token_ids: NDArray[np.int64], slots: torch.Tensor, shift: int) -> Any:
        count, end, device = len(token_ids), len(slots), self._runner.device
        start = end - count
        made = ForwardBatch(
            forward_mode=ForwardMode.EXTEND,
            batch_size=1,
            input_ids=torch.from_numpy(token_ids).to(device),
            req_pool_indices=torch.tensor([_PADDING_ROW], device=device),
            req_pool_indices_cpu=torch.tensor([_PADDING_ROW]),
            seq_lens=torch.tensor([end], device=device),
            seq_lens_cpu=torch.tensor([end]),
            orig_seq_lens=torch.tensor([end], dtype=torch.int32, device=device),
            seq_lens_sum=end,
            out_cache_loc=slots[start:],
            positions=torch.arange(start + shift, end + shift, device=device),
            extend_num_tokens=count,
            extend_seq_lens=torch.tensor([count], dtype=torch.int32, device=device),
            extend_seq_lens_cpu=[count],
            extend_prefix_lens=torch.tensor([start], dtype=torch.int32, device=device),
            extend_prefix_lens_cpu=[start],
            extend_start_loc=torch.zeros(1, dtype=torch.int32, device=device),
            extend_logprob_start_lens_cpu=[count],
            global_num_token_non_padded_cpu=count,
            capture_hidden_mode=CaptureHiddenMode.NULL,
            spec_algorithm=self._runner.spec_algorithm,
        )
        self._runner.kv_index_translator.own_plan(made).bind(made, self._runner.kv_index_translator)
        return made
