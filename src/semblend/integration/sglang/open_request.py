"""A request in SGLang's token pool, open for checking and choosing: its slots, and the forward that fills them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from semblend.contract import TokenRange
from semblend.integration.filling.passes import in_passes


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one forward pass."""

    tokens: int
    rows: int


class PooledRequest:
    """``compute_pass`` runs one forward over stretches of this request, each a row with what precedes it as context."""

    def __init__(
        self,
        layers: Sequence[Any],
        pool: Any,
        slots: torch.Tensor,
        limits: Limits,
        compute_pass: Callable[[Sequence[TokenRange]], Any],
    ) -> None:
        self.layers = layers
        self._pool = pool
        self._slots = slots
        self._limits = limits
        self._compute_pass = compute_pass

    def passes(self, ranges: Sequence[TokenRange]) -> Iterator[list[TokenRange]]:
        return in_passes(ranges, self._limits.tokens, self._limits.rows)

    def scale(self, layer: int) -> float:
        return float(self.layers[layer].scaling)

    def read(self, layer: int, part: TokenRange) -> tuple[torch.Tensor, torch.Tensor]:
        slots = self._slots[part.start : part.end].long()
        return self._pool.k_buffer[layer][slots], self._pool.v_buffer[layer][slots]

    def compute(self, ranges: Sequence[TokenRange]) -> None:
        for portion in self.passes(ranges):
            self._compute_pass(portion)


def attention_layers(model: Any, layers: int) -> Sequence[Any]:
    """The model's attention layers in order, or none if they are not one for each of the pool's layers."""
    found = {
        module.layer_id: module
        for module in model.modules()
        if hasattr(module, "layer_id") and hasattr(module, "scaling") and hasattr(module, "tp_k_head_num")
    }
    return [found[index] for index in range(layers)] if sorted(found) == list(range(layers)) else []
