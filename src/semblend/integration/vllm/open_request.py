"""A request in vLLM's paged cache, open for checking and choosing: blocks, the sparse forward and the ids it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from semblend.contract import TokenRange
from semblend.integration.core.rank_group import ALONE, RankGroup

if TYPE_CHECKING:
    import torch

    from semblend.integration.vllm.attention_cache import AttentionCache
    from semblend.integration.vllm.sparse_forward import SparseForward


class PagedRequest:
    """``ids`` by position from ``start`` on; only those of positions that are computed are ever looked at."""

    def __init__(
        self,
        cache: AttentionCache,
        sparse_forward: SparseForward,
        block_ids: torch.Tensor,
        ids: NDArray[np.int64],
        start: int = 0,
        ranks: RankGroup = ALONE,
    ) -> None:
        self._cache = cache
        self._sparse_forward = sparse_forward
        self._block_ids = block_ids
        self._ids = ids
        self._start = start
        self.ranks = ranks

    @property
    def layers(self) -> Sequence[Any]:
        return self._cache.layers

    def passes(self, ranges: Sequence[TokenRange]) -> Iterator[Sequence[TokenRange]]:
        return self._sparse_forward.passes(ranges)

    def scale(self, layer: int) -> float:
        return float(self._cache.layers[layer].impl.scale)

    def reach(self, layer: int) -> int | None:
        window: int | None = getattr(self._cache.layers[layer], "sliding_window", None)
        return None if window is None else window - 1

    def read(self, layer: int, part: TokenRange) -> tuple[torch.Tensor, torch.Tensor]:
        size = self._cache.block_tokens
        first = part.start // size
        keys, values = self._cache.read(layer, self._block_ids[first : -(-part.end // size)])
        rows = slice(part.start - first * size, part.end - first * size)
        return keys[rows], values[rows]

    def compute(self, ranges: Sequence[TokenRange]) -> None:
        self._sparse_forward.compute(self._block_ids, ranges, self._ids_of(ranges))

    def _ids_of(self, ranges: Sequence[TokenRange]) -> NDArray[np.int64]:
        parts = [self._ids[part.start - self._start : part.end - self._start] for part in ranges]
        return np.concatenate([np.empty(0, np.int64), *parts])
