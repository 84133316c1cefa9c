"""Start-up self-test: how each layer's keys move is measured on the loaded model, in slots that are not used yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode

from semblend.integration.core.namespace import text_config
from semblend.integration.core.rotation_proof import KV, TOKENS, Proof, SelfTestError, prove_rotations
from semblend.integration.rope_config import position_boundaries
from semblend.integration.rotary import candidate_rotations
from semblend.integration.sglang.kv_pool import keys_of, latent_dim_of, read_slots, values_of

# The first row of the engine's table of slots belongs to no request: the engine pads batches with it.
_PADDING_ROW: Final = 0


def prove_on_model(runner: Any, pool: Any, page_tokens: int, layers: Sequence[Any]) -> Proof:
    """The rotation of every layer, or ``SelfTestError``. ``layers``: the attention layers, in the order of the pool.

    Nothing may be served yet. The slots are zero afterwards.
    """
    if not layers:
        raise SelfTestError("the model's attention layers are not those of the KV pool, one for each")
    scratch = ScratchModel(runner, pool, page_tokens, layers)
    settings = runner.model_config
    with torch.inference_mode():
        try:
            return prove_rotations(
                scratch,
                lambda: candidate_rotations(
                    runner.model, scratch.layer_names, latent_dim_of(pool), positions=settings.context_len
                ),
                vocabulary=settings.vocab_size,
                max_positions=settings.context_len,
                boundaries=position_boundaries(text_config(settings)),
            )
        finally:
            scratch.clear()


class ScratchModel:
    """The engine's model on the last pages of its pool, through the runner's own forward pass."""

    def __init__(self, runner: Any, pool: Any, page_tokens: int, layers: Sequence[Any]) -> None:
        self._runner = runner
        self._pool = pool
        rows = keys_of(pool)[0].shape[0]
        pages = -(-TOKENS // page_tokens)
        if rows < (pages + 1) * page_tokens:
            raise SelfTestError(f"the pool of {rows} slots has no room for {TOKENS} tokens")
        self._slots = torch.arange(rows - pages * page_tokens, rows, device=runner.device)
        names = {id(module): name for name, module in runner.model.named_modules()}
        self.layer_names = tuple(names[id(layer)] for layer in layers)

    @property
    def decoder_layers(self) -> Sequence[Any]:
        """The module around each attention layer, which rotates: whole decoder layers keep a part of their input in
        the engine's batch, where it cannot be replayed."""
        return [self._runner.model.get_submodule(name.rpartition(".")[0]) for name in self.layer_names]

    def compute(self, token_ids: NDArray[np.int64], shift: int) -> list[KV]:
        slots = self._slots[: len(token_ids)]
        table = self._runner.req_to_token_pool.req_to_token
        table[_PADDING_ROW, : len(slots)] = slots.to(table)
        self._runner.forward(self._batch(token_ids, slots, shift))
        return [read_slots(self._pool, layer, slots) for layer in range(len(self.layer_names))]

    def clear(self) -> None:
        self._runner.req_to_token_pool.req_to_token[_PADDING_ROW, : len(self._slots)] = 0
        for layer in (*keys_of(self._pool), *values_of(self._pool)):
            layer[self._slots] = 0

    def _batch(self, token_ids: NDArray[np.int64], slots: torch.Tensor, shift: int) -> Any:
        """One prompt. Its slots and lengths begin at 0, its positions at ``shift``."""
        count, device = len(token_ids), self._runner.device
        made = ForwardBatch(
            forward_mode=ForwardMode.EXTEND,
            batch_size=1,
            input_ids=torch.from_numpy(token_ids).to(device),
            req_pool_indices=torch.tensor([_PADDING_ROW], device=device),
            req_pool_indices_cpu=torch.tensor([_PADDING_ROW]),
            seq_lens=torch.tensor([count], device=device),
            seq_lens_cpu=torch.tensor([count]),
            orig_seq_lens=torch.tensor([count], dtype=torch.int32, device=device),
            seq_lens_sum=count,
            out_cache_loc=slots,
            positions=torch.arange(shift, shift + count, device=device),
            extend_num_tokens=count,
            extend_seq_lens=torch.tensor([count], dtype=torch.int32, device=device),
            extend_seq_lens_cpu=[count],
            extend_prefix_lens=torch.zeros(1, dtype=torch.int32, device=device),
            extend_prefix_lens_cpu=[0],
            extend_start_loc=torch.zeros(1, dtype=torch.int32, device=device),
            extend_logprob_start_lens_cpu=[count],
            global_num_token_non_padded_cpu=count,
            capture_hidden_mode=CaptureHiddenMode.NULL,
            spec_algorithm=self._runner.spec_algorithm,
        )
        self._runner.kv_index_translator.own_plan(made).bind(made, self._runner.kv_index_translator)
        return made
