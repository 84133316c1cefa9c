"""A request between its load and the engine's own forward pass, as verification and recomputation see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from semblend.contract import TokenRange

if TYPE_CHECKING:
    import torch

    from semblend.integration.core.rank_group import RankGroup


class OpenRequest(Protocol):
    """KV by position in the prompt, and the engine's model to compute more of it. Each adapter implements it."""

    @property
    def layers(self) -> Sequence[Any]:
        """Attention layers in model order, modules that are called with query, key and value, rotated by then."""

    @property
    def ranks(self) -> RankGroup:
        """The ranks that have this request open; each sees its own heads in ``layers`` and ``read``."""

    def passes(self, ranges: Sequence[TokenRange]) -> Iterable[Sequence[TokenRange]]:
        """The same positions in the same order, in portions of one forward pass each."""

    def scale(self, layer: int) -> float:
        """The factor of query-key products."""

    def reach(self, layer: int) -> int | None:
        """How many tokens before its own a query sees, in a layer with a sliding window; None: all."""

    def read(self, layer: int, part: TokenRange) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V as the engine's cache holds them, ``[position, KV head, dim]``."""

    def compute(self, ranges: Sequence[TokenRange]) -> None:
        """Compute these positions in order, each range with everything before it as its context."""


def in_passes(ranges: Sequence[TokenRange], max_tokens: int, max_rows: int | None = None) -> Iterator[list[TokenRange]]:
    """The ranges in their order, cut and grouped so that no forward pass exceeds these tokens or rows."""
    group: list[TokenRange] = []
    left = max_tokens
    for part in ranges:
        start = part.start
        while start < part.end:
            piece = TokenRange(start, min(part.end, start + left))
            group.append(piece)
            start, left = piece.end, left - len(piece)
            if not left or len(group) == max_rows:
                yield group
                group, left = [], max_tokens
    if group:
        yield group
