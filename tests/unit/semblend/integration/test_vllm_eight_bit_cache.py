"""An 8-bit cache is read and written in the model's dtype: moved keys lose little more, values nothing at all."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from semblend.integration.vllm.attention_cache import AttentionCache
from semblend.kv.rope import half_split, rotate_keys

pytestmark = pytest.mark.models
BLOCKS, BLOCK, HEADS, DIM, TOKENS = 8, 16, 2, 32, 64


class Layer:
    """Keeps K and V as bytes, divided by a scale, as vLLM's layers do."""

    def __init__(self, kept: str, scale: float) -> None:
        self.kv_cache_dtype = kept
        self._k_scale_float, self._v_scale_float = scale, 2 * scale
        self._dtype = torch.float8_e5m2 if kept == "fp8_e5m2" else torch.float8_e4m3fn
        self.kv_cache = torch.zeros(BLOCKS, 2, BLOCK, HEADS, DIM, dtype=torch.uint8)

    @property
    def impl(self) -> Layer:
        return self

    def do_kv_cache_update(self, _: Any, keys: torch.Tensor, values: torch.Tensor, cache: Any, slots: Any) -> None:
        for side, rows, scale in ((0, keys, self._k_scale_float), (1, values, self._v_scale_float)):
            cache[slots // BLOCK, side, slots % BLOCK] = (rows.float() / scale).to(self._dtype).view(torch.uint8)


def cache_of(kept: str, scale: float, dtype: torch.dtype) -> AttentionCache:
    layer = Layer(kept, scale)
    cache = AttentionCache({"layer": layer}, ["layer"], BLOCK, dtype)
    layer.kv_cache.fill_(3)
    cache.probe(BLOCKS - 1, HEADS, DIM)
    assert bool((layer.kv_cache == 3).all()), "the probe leaves nothing behind"
    return cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1.0, 0.037])
@pytest.mark.parametrize("kept", ["fp8", "fp8_e5m2"])
def test_moved_keys_lose_little_more_than_the_cache_itself(kept: str, scale: float, dtype: torch.dtype) -> None:
    cache = cache_of(kept, scale, dtype)
    random = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(TOKENS, HEADS, DIM, generator=random).to(dtype) for _ in range(2))
    donor, recipient = torch.arange(4), torch.tensor([6, 4, 5, 0])
    rotation = half_split(1e4, DIM)
    cache.write(0, keys, values, cache.slots(donor, 0, TOKENS))
    held_keys, held_values = cache.read(0, donor)
    assert held_keys.dtype == held_values.dtype == cache.dtype == dtype
    bytes_before = cache.layers[0].kv_cache[donor, 1].clone()
    cache.write(0, rotate_keys(held_keys, 777, rotation), held_values, cache.slots(recipient, 0, TOKENS))
    moved_keys, _ = cache.read(0, recipient)
    assert torch.equal(cache.layers[0].kv_cache[recipient, 1], bytes_before), "V is the same bytes"
    true = rotate_keys(keys.float(), 777, rotation)
    once = float((held_keys.float() - keys.float()).norm() / keys.float().norm())
    moved = float((moved_keys.float() - true).norm() / true.norm())
    assert 0 < once < moved <= 1.45 * once  # two roundings that know nothing of each other: 1.41


def test_the_error_of_e4m3_is_within_the_promised_bound() -> None:
    """K error of a moved fp8 key at most 1.35 times that of fp8 alone, on keys with a few large dimensions."""
    cache = cache_of("fp8", 1.0, torch.bfloat16)
    random = torch.Generator().manual_seed(1)
    keys = (torch.randn(TOKENS, HEADS, DIM, generator=random) * torch.linspace(0.2, 4.0, DIM)).to(torch.bfloat16)
    donor = torch.arange(4)
    rotation = half_split(1e4, DIM)
    cache.write(0, keys, keys, cache.slots(donor, 0, TOKENS))
    held, _ = cache.read(0, donor)
    cache.write(0, rotate_keys(held, 333, rotation), held, cache.slots(donor, 0, TOKENS))
    true = rotate_keys(keys.float(), 333, rotation)
    own = true.bfloat16().to(torch.float8_e4m3fn).float()
    once = float((own - true).norm() / true.norm())
    moved = float((cache.read(0, donor)[0].float() - true).norm() / true.norm())
    assert moved <= 1.35 * once
