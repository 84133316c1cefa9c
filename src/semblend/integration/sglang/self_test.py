"""Start-up self-test: how each layer's keys move is measured on the loaded model, in slots that are not used yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.contract import TokenRange
from semblend.integration.core.cost_probe import MAX_CONTEXT, probe
from semblend.integration.core.namespace import text_config
from semblend.integration.core.rotation_proof import KV, TOKENS, Proof, SelfTestError, prove_rotations
from semblend.integration.rope_config import position_boundaries
from semblend.integration.rotary import candidate_rotations
from semblend.integration.sglang.kv_pool import keys_of, latent_dim_of, read_slots, values_of
from semblend.integration.sglang.prefill import Prefill
from semblend.plan.reuse_cost import Timing


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


def probe_costs(runner: Any, pool: Any, page_tokens: int) -> tuple[Timing, ...]:
    """What forward passes take, each over one range. Not on a device, which computes while the time is taken."""
    if runner.device != "cpu":
        return ()
    rows = keys_of(pool)[0].shape[0]
    room = min(runner.model_config.context_len, MAX_CONTEXT, rows // 2) // page_tokens * page_tokens
    slots, vocabulary = torch.arange(rows - room, rows, device=runner.device), runner.model_config.vocab_size
    prefill = Prefill(runner)

    def compute(ranges: Sequence[TokenRange]) -> None:
        for part in ranges:
            token_ids = np.linspace(1, vocabulary - 1, len(part)).astype(np.int64)
            prefill.compute(token_ids, slots[: part.end])

    with torch.inference_mode():
        try:
            return probe(compute, room, many_rows=False)
        finally:
            for layer in (*keys_of(pool), *values_of(pool)):
                layer[slots] = 0


class ScratchModel:
    """The engine's model on the last pages of its pool, through the runner's own forward pass."""

    def __init__(self, runner: Any, pool: Any, page_tokens: int, layers: Sequence[Any]) -> None:
        self._runner = runner
        self._prefill = Prefill(runner)
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
        self._prefill.compute(token_ids, slots, shift=shift)
        return [read_slots(self._pool, layer, slots) for layer in range(len(self.layer_names))]

    def clear(self) -> None:
        for layer in (*keys_of(self._pool), *values_of(self._pool)):
            layer[self._slots] = 0
