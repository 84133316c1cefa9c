"""A load is compared with the model's first layer: sound ones pass, one position off and other texts do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from semblend.contract import TokenRange
from semblend.integration.core import load_check
from semblend.kv.rope import half_split, rotate_keys

pytestmark = pytest.mark.models
TOKENS, HEADS, DIM, BLOCK = 64, 3, 64, 16
ROTATION = half_split(1e5, DIM)
BLOCKS = torch.tensor([5, 2, 7, 1])


class Engine:
    """Keys and values of the first layer by token and position, cached in blocks of 16."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16, *, key_bias: float = 0.0) -> None:
        """``key_bias`` is its norm, relative to the part of K that depends on the token; all of it in slow pairs."""
        random = torch.Generator().manual_seed(3)
        self.table = torch.randn(50, 2, HEADS, DIM, generator=random)
        self.table[:, 0, :, DIM // 2 - 1] += key_bias * DIM**0.5
        self.layers = [torch.nn.Module(), torch.nn.Module()]
        self.layers[0].forward = lambda *_: pytest.fail("the forward continued beyond the first layer")
        self.kv = torch.full((2, 8 * BLOCK, HEADS, DIM), 9.0).to(dtype)

    def kv_of(self, token: int, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        key, value = self.table[token]
        return rotate_keys(key[None], position, ROTATION)[0], value

    def put(self, ids: list[int], moved_too_far: int = 0) -> None:
        for position, token in enumerate(ids):
            slot = int(BLOCKS[position // BLOCK]) * BLOCK + position % BLOCK
            key, value = self.kv_of(token, position + moved_too_far)
            self.kv[0, slot], self.kv[1, slot] = key.to(self.kv.dtype), value.to(self.kv.dtype)

    def read(self, layer: int, part: TokenRange) -> tuple[torch.Tensor, torch.Tensor]:
        assert layer == 0
        positions = torch.arange(part.start, part.end)
        rows = BLOCKS[positions // BLOCK] * BLOCK + positions % BLOCK
        return self.kv[0, rows], self.kv[1, rows]

    def passes(self, ranges: Any) -> Any:
        return ([part] for part in ranges)

    def compute(self, ranges: Any) -> None:
        positions = [at for part in ranges for at in range(part.start, part.end)]
        pairs = [self.kv_of(IDS[at], at) for at in positions]
        keys, values = (torch.stack(part).reshape(len(positions), -1) for part in zip(*pairs, strict=True))
        self.layers[0](keys, keys, values)


IDS = np.random.default_rng(1).integers(0, 50, TOKENS).tolist()
AT = np.array([0, 1, 17, 40, 63])


def find_mismatch(engine: Any) -> str | None:
    return load_check.find_mismatch(engine, AT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_sound_loads_pass_whatever_the_cache_rounds(dtype: torch.dtype) -> None:
    engine = Engine(dtype)
    engine.put(IDS)
    assert find_mismatch(engine) is None


@pytest.mark.parametrize("moved", [1, -1, 64, 4000])
def test_keys_at_another_position_are_refused(moved: int) -> None:
    engine = Engine()
    engine.put(IDS, moved)
    found = find_mismatch(engine)
    assert found is not None
    assert found.startswith("first-layer K at position")


def test_one_position_of_another_text_is_refused_and_named() -> None:
    engine = Engine()
    engine.put([*IDS[:40], (IDS[40] + 1) % 50, *IDS[41:]])
    found = find_mismatch(engine)
    assert found is not None
    assert "at position 40 " in found


def test_what_is_no_number_is_refused() -> None:
    engine = Engine()
    engine.put(IDS)
    engine.kv[1, int(BLOCKS[1]) * BLOCK + 1] = float("nan")
    assert find_mismatch(engine) is not None


def test_a_large_key_bias_hides_neither_another_token_nor_another_position() -> None:
    """As in the first layer of Qwen2.5, whose key bias is 50 times the part that depends on the token."""
    engine = Engine(key_bias=50.0)
    engine.put(IDS)
    assert find_mismatch(engine) is None
    engine.put(IDS, 1)
    assert "first-layer K at position" in str(find_mismatch(engine))
    engine.put([*IDS[:40], (IDS[40] + 1) % 50, *IDS[41:]])
    assert "first-layer V at position 40 " in str(find_mismatch(engine))
    engine.put(IDS[::-1])
    assert "first-layer V at position" in str(find_mismatch(engine))


def test_keys_alone_show_another_token_under_a_large_bias() -> None:
    engine = Engine(key_bias=50.0)
    engine.table[:, 1] = 1.0  # values that tell nothing
    engine.put([*IDS[:40], (IDS[40] + 1) % 50, *IDS[41:]])
    assert "first-layer K at position 40 " in str(find_mismatch(engine))


class LatentEngine(Engine):
    """One entry per token, as MLA keeps it: a vector that depends on the token alone, and a rotated part after it."""

    def read(self, layer: int, part: TokenRange) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = super().read(layer, part)
        entries = torch.cat([values.flatten(1), keys.flatten(1)], dim=1)[:, None]
        return entries, entries[..., :0]

    def compute(self, ranges: Any) -> None:
        positions = [at for part in ranges for at in range(part.start, part.end)]
        pairs = [self.kv_of(IDS[at], at) for at in positions]
        keys, latents = (torch.stack(part).reshape(len(positions), -1) for part in zip(*pairs, strict=True))
        self.layers[0](keys, latents, keys[:, None])


def test_latent_entries_are_compared_by_their_parts() -> None:
    engine = LatentEngine()
    engine.put(IDS)
    assert find_mismatch(engine) is None
    engine.put(IDS, 1)
    assert "first-layer K at position" in str(find_mismatch(engine))
    engine.put([*IDS[:40], (IDS[40] + 1) % 50, *IDS[41:]])
    assert "first-layer V at position 40 " in str(find_mismatch(engine))
