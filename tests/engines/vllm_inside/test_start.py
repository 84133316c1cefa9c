"""The start-up proof fires: a rotation or a layout that is not the engine's keeps the worker from serving."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from semblend.contract import TokenRange
from semblend.integration.vllm import start
from semblend.integration.vllm.options import ConnectorOptions
from semblend.integration.vllm.support import Support
from semblend.kv.rope import half_split, rotate_keys

pytestmark = pytest.mark.engine
HEADS, DIM, BLOCKS = 2, 32, 9


class Layer:
    """An attention layer that stores K and V by slot; ``scramble`` loses what it is given."""

    def __init__(self, block: int, dtype: torch.dtype, scramble: bool) -> None:
        self.kv_cache = torch.zeros((BLOCKS, 2, block, HEADS, DIM), dtype=dtype)
        self.impl = self
        self._block = block
        self._scramble = scramble

    def do_kv_cache_update(self, _: Any, keys: torch.Tensor, values: torch.Tensor, cache: Any, slots: Any) -> None:
        blocks, rows = slots // self._block, slots % self._block
        cache[blocks, 0, rows] = keys if not self._scramble else keys.flip(-1).abs().sqrt()
        cache[blocks, 1, rows] = values


class Model:
    """Stands in for ``SparseForward``: K of a token is a fixed vector, turned by its position."""

    theta = 10000.0

    def __init__(self, _: Any, __: Any, cache: Any, ___: int) -> None:
        self._cache = cache

    def compute(self, block_ids: torch.Tensor, ranges: list[TokenRange], token_ids: Any) -> None:
        positions = np.concatenate([np.arange(part.start, part.end) for part in ranges])
        source = torch.Generator().manual_seed(0)
        table = torch.randn((512, HEADS, DIM), generator=source).to(self._cache.dtype)
        rotation = half_split(self.theta, DIM)
        keys = torch.stack(
            [rotate_keys(table[t : t + 1], int(p), rotation)[0] for t, p in zip(token_ids, positions, strict=True)]
        )
        slots = self._cache.slots(block_ids, int(positions[0]), int(positions[-1]) + 1)
        self._cache.write(0, keys, keys, slots)


def start_worker(
    monkeypatch: pytest.MonkeyPatch,
    *,
    theta: float = 1e4,
    block: int = 64,
    scramble: bool = False,
    model: type = Model,
    others_agree: bool = True,
) -> tuple[Any, Any]:
    monkeypatch.setattr(start, "SparseForward", model)
    monkeypatch.setattr(start, "agree_in_group", lambda mine: mine and others_agree)
    layers = {"layer": Layer(block, torch.float32, scramble)}
    config: Any = SimpleNamespace(
        compilation_config=SimpleNamespace(static_forward_context=layers),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=64),
        model_config=SimpleNamespace(get_vocab_size=lambda: 512),
        parallel_config=SimpleNamespace(world_size=1),
    )
    cache: Any = SimpleNamespace(kv_cache_groups=[SimpleNamespace(layer_names=["layer"])], num_blocks=BLOCKS)
    support = Support(True, "", theta, DIM, DIM, HEADS, 1, block, sparse_forward=True)
    log = logging.getLogger("semblend.tests")
    return start.make_worker_half(config, cache, support, ConnectorOptions(), object(), log)


@pytest.mark.parametrize("block", [32, 64, 96, 128])
def test_the_right_rotation_is_ready_at_every_supported_block_size(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    readiness, half = start_worker(monkeypatch, block=block)
    assert readiness.fault == ""
    assert readiness.sparse_forward
    assert readiness.bytes_per_token == 2 * HEADS * DIM * 4
    assert half is not None


@pytest.mark.parametrize("theta", [1e4 * 1.05, 5e5])
def test_a_wrong_theta_is_caught(monkeypatch: pytest.MonkeyPatch, theta: float) -> None:
    readiness, half = start_worker(monkeypatch, theta=theta)
    assert "self-test failed" in readiness.fault
    assert half is None


class Misreading(Model):
    """Reads 64-bit ids as 32-bit ones, as a graph compiled for the latter would: every other id is 0."""

    def compute(self, block_ids: torch.Tensor, ranges: list[TokenRange], token_ids: Any) -> None:
        super().compute(block_ids, ranges, token_ids.astype(np.int64).view(np.int32)[: len(token_ids)])


def test_a_forward_that_misreads_its_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    readiness, half = start_worker(monkeypatch, model=Misreading)
    assert "self-test failed" in readiness.fault
    assert half is None


def test_a_rank_does_not_begin_the_forward_when_another_could_not_read_its_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readiness, half = start_worker(monkeypatch, others_agree=False)
    assert readiness.fault == "self-test failed: on another rank"
    assert half is None


def test_a_layout_that_is_no_permutation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    readiness, half = start_worker(monkeypatch, scramble=True)
    assert "self-test failed" in readiness.fault
    assert half is None
