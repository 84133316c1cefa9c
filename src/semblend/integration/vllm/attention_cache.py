"""The engine's paged KV cache as the worker half sees it: read blocks, write rows, one entry per attention layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from semblend.kv.layout import BlockLayout, probe_layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class AttentionCache:
    """Layers in model order. Rows are written by the layer's own operation, so every packing is the engine's."""

    def __init__(self, layers: Mapping[str, Any], names: Sequence[str], block_tokens: int) -> None:
        self.names = tuple(names)
        self.block_tokens = block_tokens
        self.layers = tuple(layers[name] for name in names)
        self._layout: BlockLayout | None = None

    @property
    def layout(self) -> BlockLayout:
        assert self._layout is not None, "the layout is probed before anything is served"
        return self._layout

    @property
    def blocks(self) -> int:
        return int(self.layers[0].kv_cache.shape[0])

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.layers[0].kv_cache.dtype
        return dtype

    def probe(self, scratch_block: int, heads: int, head_dim: int) -> BlockLayout:
        """Learn the packing in an unused block; all layers must have the same."""
        layouts = []
        for index, layer in enumerate(self.layers):

            def write(keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, at: int = index) -> None:
                self.write(at, keys, values, slots + scratch_block * self.block_tokens)

            layouts.append(
                probe_layout(
                    write,
                    layer.kv_cache[scratch_block],
                    block_tokens=self.block_tokens,
                    heads=heads,
                    head_dim=head_dim,
                )
            )
        if len({layout.digest() for layout in layouts}) != 1:
            raise ValueError("attention layers pack their cache differently")
        self._layout = layouts[0]
        return self._layout

    def read(self, layer: int, block_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of whole blocks, in token order."""
        return self.layout.unpack(self.layers[layer].kv_cache[block_ids])

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        target = self.layers[layer]
        target.impl.do_kv_cache_update(target, keys, values, target.kv_cache, slots)

    def zero(self, block_ids: Sequence[int]) -> None:
        for layer in self.layers:
            for block_id in block_ids:
                layer.kv_cache[block_id].zero_()

    def slots(self, block_ids: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """Where positions ``start <= i < end`` of a request with these blocks lie."""
        positions = torch.arange(start, end)
        blocks = block_ids[positions // self.block_tokens]
        return blocks * self.block_tokens + positions % self.block_tokens
