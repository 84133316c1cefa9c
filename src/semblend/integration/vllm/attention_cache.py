"""The engine's paged KV cache as the worker half sees it: read blocks, write rows, one entry per attention layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from semblend.kv.layout import BlockLayout, probe_layout, strided_side
from semblend.kv.move import Pages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# vLLM keeps these as bytes, with one scale per layer for K and one for V.
_EIGHT_BITS: Final = {
    "fp8": torch.float8_e4m3fn,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}


class AttentionCache:
    """Layers in model order. Rows are written by the layer's own operation, so every packing is the engine's.

    Layers of MLA keep one entry per token, a latent vector and a rotated part after it: it is K, and V has no width.
    An 8-bit cache is read and written in ``model_dtype``: a key loses its precision once more when it is moved, and V
    does not change, because a value that was rounded to 8 bits is rounded to the same 8 bits again.
    """

    def __init__(
        self, layers: Mapping[str, Any], names: Sequence[str], block_tokens: int, model_dtype: torch.dtype | None = None
    ) -> None:
        self.names = tuple(names)
        self._model_dtype = model_dtype
        self.block_tokens = block_tokens
        self.layers = tuple(layers[name] for name in names)
        self._layout: BlockLayout | None = None

    @property
    def latent_dim(self) -> int:
        """Size of MLA's latent vector, which is not rotated; 0 for layers that keep K and V."""
        return int(getattr(self.layers[0], "kv_lora_rank", None) or 0)

    @property
    def layout(self) -> BlockLayout:
        assert self._layout is not None, "the layout is probed before anything is served"
        return self._layout

    @property
    def blocks(self) -> int:
        return int(self.layers[0].kv_cache.shape[0])

    @property
    def eight_bits(self) -> torch.dtype | None:
        """The dtype of a quantised cache, None for one that keeps K and V as they are computed."""
        return _EIGHT_BITS.get(str(getattr(self.layers[0], "kv_cache_dtype", None)))

    @property
    def dtype(self) -> torch.dtype:
        """Of K and V as they are read and written."""
        if self.eight_bits is not None:
            assert self._model_dtype is not None, "a quantised cache needs the model's dtype"
            return self._model_dtype
        dtype: torch.dtype = self.layers[0].kv_cache.dtype
        return dtype

    @property
    def device(self) -> torch.device:
        device: torch.device = self.layers[0].kv_cache.device
        return device

    def probe(self, scratch_block: int, heads: int, head_dim: int) -> BlockLayout:
        """Learn the packing in an unused block; all layers must have the same."""
        layouts = []
        for index, layer in enumerate(self.layers):

            def write(keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor, at: int = index) -> None:
                key_scale, value_scale = self._scales(at)
                scaled = (keys.to(self.dtype) * key_scale, values.to(self.dtype) * value_scale)
                self.write(at, *scaled, slots + scratch_block * self.block_tokens)

            block = layer.kv_cache[scratch_block]
            layouts.append(
                probe_layout(
                    write,
                    block if self.eight_bits is None else block.view(self.eight_bits),
                    block_tokens=self.block_tokens,
                    heads=heads,
                    head_dim=head_dim,
                    has_values=not self.latent_dim,
                )
            )
        if len({layout.digest() for layout in layouts}) != 1:
            raise ValueError("attention layers pack their cache differently")
        self._layout = layouts[0]
        return self._layout

    def read(self, layer: int, block_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of whole blocks, in token order."""
        keys, values = self.layout.unpack(self.layers[layer].kv_cache[block_ids])
        if self.eight_bits is None:
            return keys, values
        key_scale, value_scale = self._scales(layer)
        return self._widened(keys, key_scale), self._widened(values, value_scale)

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        target, latent = self.layers[layer], self.latent_dim
        if latent:
            scale = target._k_scale
            parts = (keys[:, 0, :latent].contiguous(), keys[..., latent:].contiguous())
            target.impl.do_kv_cache_update(*parts, target.kv_cache, slots, target.kv_cache_dtype, scale)
        else:
            target.impl.do_kv_cache_update(target, keys, values, target.kv_cache, slots)

    def _scales(self, layer: int) -> tuple[float, float]:
        """What the layer divides K and V by before it rounds them; 1 where it does not quantise."""
        if self.eight_bits is None:
            return 1.0, 1.0
        return float(self.layers[layer]._k_scale_float), float(self.layers[layer]._v_scale_float)

    def _widened(self, side: torch.Tensor, scale: float) -> torch.Tensor:
        assert self.eight_bits is not None
        return (side.view(self.eight_bits).float() * scale).to(self.dtype)

    def zero(self, block_ids: Sequence[int]) -> None:
        for layer in self.layers:
            for block_id in block_ids:
                layer.kv_cache[block_id].zero_()

    def pages(self) -> Pages:
        """The cache as views of K and V. ``ValueError`` where the probed layout does not lie in strides."""
        layout = self.layout
        sides = range(len(layout.offsets))
        return Pages(*(tuple(strided_side(layer.kv_cache, layout, side) for layer in self.layers) for side in sides))

    def slots(self, block_ids: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """Where positions ``start <= i < end`` of a request with these blocks lie."""
        return self.slots_of(block_ids, torch.arange(start, end, device=block_ids.device))

    def slots_of(self, block_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Where these positions of a request with these blocks lie."""
        blocks = block_ids[positions // self.block_tokens]
        return blocks * self.block_tokens + positions % self.block_tokens
