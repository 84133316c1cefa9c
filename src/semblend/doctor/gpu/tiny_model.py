"""A random Llama of a few megabytes, and the same blends made by hand: the reference for what the engine answers.

Used by the steps of the proof, in the engine's interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from sembase.registry import load_target
from semblend.kv.rope import half_split, rotate_keys

VOCABULARY: Final = 512
HEAD_DIM: Final = 64
_THETA: Final = 10000.0
_SHAPE: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 4 * HEAD_DIM,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 4096,
    "initializer_range": 0.08,
    "rope_theta": _THETA,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a prompt: computed in place, or positions ``start ..`` of a donor's own KV, moved here."""

    tokens: Sequence[int]
    donor: Sequence[int] | None = None
    start: int = 0


class TinyModel:
    """Weights of a fixed seed, in fp32 on the host."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        config = load_target("transformers:LlamaConfig")(**_SHAPE)
        self._model = load_target("transformers:LlamaForCausalLM")(config).eval()
        self._cache_class = load_target("transformers:DynamicCache")

    def save(self, folder: Path) -> Path:
        self._model.save_pretrained(folder)
        return folder

    def cold(self, tokens: Sequence[int]) -> list[float]:
        """Log-probabilities of the next token."""
        return self.blend([Piece(tokens)])

    def blend(self, pieces: Sequence[Piece]) -> list[float]:
        """As the engine should answer: a donor piece keeps the KV of its own context, keys moved; the rest sees it."""
        logits = torch.empty(0)
        past = self._cache_class()
        position = 0
        with torch.no_grad():
            for piece in pieces:
                if piece.donor is None:
                    at = torch.arange(position, position + len(piece.tokens))[None]
                    given = torch.tensor([list(piece.tokens)])
                    answer = self._model(given, past_key_values=past, position_ids=at, use_cache=True)
                    past, logits = answer.past_key_values, answer.logits[0, -1]
                else:
                    self._insert(past, piece, position)
                position += len(piece.tokens)
        return [float(value) for value in logits.log_softmax(-1)]

    def kv(self, tokens: Sequence[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """K and V of a cold prefill, layer by layer: tokens x heads x head size."""
        with torch.no_grad():
            own = self._model(torch.tensor([list(tokens)]), past_key_values=self._cache_class(), use_cache=True)
        return [
            (layer.keys[0].transpose(0, 1), layer.values[0].transpose(0, 1)) for layer in own.past_key_values.layers
        ]

    def _insert(self, past: Any, piece: Piece, position: int) -> None:
        assert piece.donor is not None
        rotation = half_split(_THETA, HEAD_DIM)
        end = piece.start + len(piece.tokens)
        for number, (keys, values) in enumerate(self.kv(piece.donor)):
            moved = rotate_keys(keys[piece.start : end], position - piece.start, rotation)
            past.update(moved.transpose(0, 1)[None], values[piece.start : end].transpose(0, 1)[None], number)
