"""Start-up self-test: how each layer's keys move is measured on the loaded model, in blocks that are not used yet."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.contract import TokenRange
from semblend.integration.core.namespace import text_config
from semblend.integration.core.probes import observing
from semblend.integration.core.rotation_proof import KV, TOKENS, Proof, SelfTestError, prove_rotations
from semblend.integration.rope_config import position_boundaries
from semblend.integration.rotary import candidate_rotations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm.config import VllmConfig

    from semblend.integration.vllm.attention_cache import AttentionCache
    from semblend.integration.vllm.sparse_forward import SparseForward


def prove_on_model(vllm_config: VllmConfig, model: Any, cache: AttentionCache, sparse_forward: SparseForward) -> Proof:
    """The rotation of every layer, or ``SelfTestError``. The blocks are zero afterwards."""
    scratch = ScratchModel(model, cache, sparse_forward)
    settings = vllm_config.model_config
    with torch.inference_mode():
        try:
            return prove_rotations(
                scratch,
                lambda: candidate_rotations(model, scratch.layer_names, cache.latent_dim),
                vocabulary=settings.get_vocab_size(),
                max_positions=settings.max_model_len,
                boundaries=position_boundaries(text_config(settings)),
                eight_bits=cache.eight_bits,
            )
        finally:
            scratch.clear()


class ScratchModel:
    """The engine's model on the last blocks of its cache, before anything is served."""

    def __init__(self, model: Any, cache: AttentionCache, sparse_forward: SparseForward) -> None:
        self._model = model
        self._cache = cache
        self._sparse_forward = sparse_forward
        self._blocks = list(range(cache.blocks - -(-TOKENS // cache.block_tokens), cache.blocks))
        names = {id(module): name for name, module in model.named_modules()}
        self.layer_names = tuple(
            names.get(id(layer), name) for name, layer in zip(cache.names, cache.layers, strict=True)
        )

    @property
    def decoder_layers(self) -> Sequence[Any]:
        """Of each attention layer the module around it whose name ends with its number."""
        return [self._model.get_submodule(_numbered(name)) for name in self.layer_names]

    def compute(self, token_ids: NDArray[np.int64], shift: int) -> list[KV]:
        """From the cache, or from the calls of the attention layers where the cache rounds to 8 bits."""
        block_ids = torch.tensor(self._blocks, dtype=torch.int64)
        count, called = len(token_ids), dict[int, KV]()

        def observe(layer: int, _query: Any, keys: torch.Tensor, values: torch.Tensor) -> None:
            shape = (count, self._cache.layout.heads, self._cache.layout.head_dim)
            called[layer] = (keys.view(shape).to("cpu", copy=True), values.view(shape).to("cpu", copy=True))

        observed = self._cache.layers if self._cache.eight_bits is not None else ()
        with positions_shifted(self._model, shift), observing(observed, observe):
            self._sparse_forward.compute(block_ids, [TokenRange(0, count)], token_ids)
        if observed:
            return [called[layer] for layer in range(len(observed))]
        sides = (self._cache.read(layer, block_ids) for layer in range(len(self._cache.names)))
        return [(keys[:count].to("cpu", copy=True), values[:count].to("cpu", copy=True)) for keys, values in sides]

    def clear(self) -> None:
        self._cache.zero(self._blocks)


@contextmanager
def positions_shifted(model: Any, shift: int) -> Iterator[None]:
    """The model gets other positions than those whose slots and lengths the attention metadata holds.

    Not by a hook: classes that vLLM can compile call their ``forward`` themselves, which runs none.
    """
    own = model.forward

    def forward(*arguments: Any, **named: Any) -> Any:
        return own(*arguments, **{**named, "positions": named["positions"] + shift})

    model.forward = forward
    try:
        yield
    finally:
        del model.forward


def _numbered(layer_name: str) -> str:
    parts = layer_name.split(".")
    numbers = [at for at, part in enumerate(parts) if part.isdigit()]
    if not numbers:
        raise SelfTestError(f"the attention layer {layer_name} is not part of a numbered decoder layer")
    return ".".join(parts[: numbers[0] + 1])
