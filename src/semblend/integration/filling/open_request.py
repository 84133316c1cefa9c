"""One request between its load and the engine's own pass, as checking and choosing see it. Each adapter has its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from semblend.contract import TokenRange


class OpenRequest(Protocol):
    """KV by position in the prompt, and the engine's own model to compute more of it."""

    @property
    def layers(self) -> Sequence[Any]:
        """Attention layers in model order, modules that are called with query, key and value, rotated by then."""

    def passes(self, ranges: Sequence[TokenRange]) -> Iterable[Sequence[TokenRange]]:
        """The same positions in the same order, in portions that one forward computes."""

    def scale(self, layer: int) -> float:
        """What a product of query and key is multiplied by."""

    def read(self, layer: int, part: TokenRange) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V as the engine's cache holds them, ``[position, KV head, dim]``."""

    def compute(self, ranges: Sequence[TokenRange]) -> None:
        """Fill these positions, in order, each stretch with what stands before it as its context."""
