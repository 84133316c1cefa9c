"""The paged cache in every physical layout of vLLM 0.32: probed, written by slot and read back by block."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from semblend.integration.vllm.attention_cache import AttentionCache

pytestmark = pytest.mark.models

LAYERS, BLOCKS, HEADS, TOKENS, DIM = 3, 6, 2, 16, 8
# Memory order of the axes layer, block, head, token, content; the names are vLLM's.
LAYOUTS = {
    "LBHNC": (0, 1, 2, 3, 4),
    "LBNHC": (0, 1, 3, 2, 4),
    "LHBNC": (0, 2, 1, 3, 4),
    "BLHNC": (1, 0, 2, 3, 4),
    "BLNHC": (1, 0, 3, 2, 4),
    "BHLNC": (1, 2, 0, 3, 4),
}


class Layer:
    """An attention layer with a view of the common allocation, which it writes as the GPU backends do."""

    def __init__(self, kv_cache: torch.Tensor) -> None:
        self.kv_cache = kv_cache
        self.impl = self

    def do_kv_cache_update(
        self, _: Any, keys: torch.Tensor, values: torch.Tensor, kv_cache: torch.Tensor, slots: torch.Tensor
    ) -> None:
        for rows, side in zip((keys, values), kv_cache.transpose(1, 2).split(DIM, dim=-1), strict=True):
            side[slots // TOKENS, slots % TOKENS] = rows


def cache_in(order: tuple[int, ...], dtype: torch.dtype) -> AttentionCache:
    sizes = (LAYERS, BLOCKS, HEADS, TOKENS, 2 * DIM)
    memory = torch.zeros([sizes[axis] for axis in order], dtype=dtype)
    logical = memory.permute([order.index(axis) for axis in range(len(sizes))])
    names = [f"l{n}" for n in range(LAYERS)]
    return AttentionCache({name: Layer(view) for name, view in zip(names, logical, strict=True)}, names, TOKENS)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_written_by_slot_is_read_by_block(name: str, dtype: torch.dtype) -> None:
    cache = cache_in(LAYOUTS[name], dtype)
    cache.probe(BLOCKS - 1, HEADS, DIM)
    assert not any(bool(layer.kv_cache.any()) for layer in cache.layers), "the probe leaves nothing behind"
    block_ids = torch.tensor([4, 1, 3])
    start, end = 5, 41
    source = torch.Generator().manual_seed(0)
    written = torch.randn((LAYERS, 2, end - start, HEADS, DIM), generator=source).to(dtype)
    slots = cache.slots(block_ids, start, end)
    for layer in range(LAYERS):
        cache.write(layer, written[layer, 0], written[layer, 1], slots)
    for layer in range(LAYERS):
        for side, read in enumerate(cache.read(layer, block_ids)):
            assert torch.equal(read[start:end], written[layer, side])
            assert not bool(read[:start].any())
            assert not bool(read[end:].any())
        untouched = [n for n in range(BLOCKS) if n not in block_ids.tolist()]
        assert not bool(cache.layers[layer].kv_cache[untouched].any())


def test_the_names_say_the_order_of_the_axes() -> None:
    assert {"".join("LBHNC"[axis] for axis in order): order for order in LAYOUTS.values()} == LAYOUTS
