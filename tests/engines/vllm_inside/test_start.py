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
HEADS, DIM, BLOCKS, POSITIONS, VOCABULARY = 2, 32, 9, 512, 512


class Attention(torch.nn.Module):
    """An attention layer that stores K and V by slot; ``scramble`` loses what it is given."""

    def __init__(self, block: int, scramble: bool) -> None:
        super().__init__()
        self.kv_cache = torch.zeros((BLOCKS, 2, block, HEADS, DIM))
        self._block = block
        self._scramble = scramble

    @property
    def impl(self) -> Attention:
        return self

    def do_kv_cache_update(self, _: Any, keys: torch.Tensor, values: torch.Tensor, cache: Any, slots: Any) -> None:
        blocks, rows = slots // self._block, slots % self._block
        cache[blocks, 0, rows] = keys if not self._scramble else keys.flip(-1).abs().sqrt()
        cache[blocks, 1, rows] = values


class Rotary(torch.nn.Module):
    """A rotary module as vLLM makes them."""

    is_neox_style = True

    def __init__(self, theta: float) -> None:
        super().__init__()
        angles = torch.arange(POSITIONS).float()[:, None] * half_split(theta, DIM).inverse_frequencies
        self.register_buffer("cos_sin_cache", torch.cat([angles.cos(), angles.sin()], dim=-1))


class Decoder(torch.nn.Module):
    """K of a token is a fixed vector, turned by its position with ``theta``; the table says ``table_theta``."""

    def __init__(self, block: int, scramble: bool, theta: float, table_theta: float) -> None:
        super().__init__()
        self.attn = Attention(block, scramble)
        self.rotary_emb = Rotary(table_theta)
        self._theta = theta

    def forward(self, positions: torch.Tensor, hidden: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        keys, rotation = hidden.view(-1, HEADS, DIM), half_split(self._theta, DIM)
        turned = [rotate_keys(keys[row : row + 1], int(at), rotation) for row, at in enumerate(positions)]
        self.attn.do_kv_cache_update(self.attn, torch.cat(turned), keys, self.attn.kv_cache, slots)
        return hidden * 2


class Model(torch.nn.Module):
    def __init__(self, *layers: Decoder) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)
        self.slots = torch.empty(0)
        self._table = torch.randn((VOCABULARY, HEADS * DIM), generator=torch.Generator().manual_seed(0))

    def forward(self, *, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        hidden = self._table[input_ids]
        for layer in self.layers:
            hidden = layer(positions, hidden, self.slots)
        return hidden


class Forward:
    """Stands in for ``SparseForward``, of a model that is not compiled."""

    error: float | None = None
    uses_graph = False

    def __init__(self, runner: Any, _: Any, cache: Any, __: int) -> None:
        self._model = runner.get_model()
        self._cache = cache

    def compute(self, block_ids: torch.Tensor, ranges: list[TokenRange], token_ids: Any) -> None:
        positions = torch.cat([torch.arange(part.start, part.end) for part in ranges])
        self._model.slots = self._cache.slots_of(block_ids, positions)
        self._model(input_ids=torch.from_numpy(token_ids), positions=positions)

    def graph_error(self, block_ids: torch.Tensor, vocabulary: int) -> float | None:
        return self.error


def start_worker(
    monkeypatch: pytest.MonkeyPatch,
    *,
    table_theta: float = 1e4,
    block: int = 64,
    scramble: bool = False,
    forward: type = Forward,
    others_agree: bool = True,
) -> tuple[Any, Any]:
    monkeypatch.setattr(start, "SparseForward", forward)
    group = SimpleNamespace(size=1, agree=lambda mine: mine and others_agree)
    monkeypatch.setattr(start, "TensorParallelRanks", lambda: group)
    model = Model(Decoder(block, scramble, 1e4, table_theta), Decoder(block, scramble, 1e4, table_theta))
    layers = {f"layers.{number}.attn": layer.attn for number, layer in enumerate(model.layers)}
    config: Any = SimpleNamespace(
        compilation_config=SimpleNamespace(static_forward_context=layers),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=64),
        model_config=SimpleNamespace(
            get_vocab_size=lambda: VOCABULARY, max_model_len=POSITIONS, hf_text_config=None, dtype=torch.float32
        ),
        parallel_config=SimpleNamespace(world_size=1),
    )
    cache: Any = SimpleNamespace(kv_cache_groups=[SimpleNamespace(layer_names=list(layers))], num_blocks=BLOCKS)
    support = Support(
        usable=True, reason="", head_dim=DIM, kv_heads=HEADS, layers=2, block_tokens=block, sparse_forward=True
    )
    log = logging.getLogger("semblend.tests")
    runner = SimpleNamespace(get_model=lambda: model)
    readiness, half = start.make_worker_half(config, cache, support, ConnectorOptions(), runner, log)
    assert not any(layer.kv_cache.any() for layer in layers.values()), "scratch blocks are left empty"
    return readiness, half


@pytest.mark.parametrize("block", [16, 32, 64, 96, 128])
def test_the_right_rotation_is_ready_at_every_block_size(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    readiness, half = start_worker(monkeypatch, block=block)
    assert readiness.fault == ""
    assert readiness.sparse_forward
    assert readiness.bytes_per_token == 2 * 2 * HEADS * DIM * 4
    assert half is not None


@pytest.mark.parametrize("theta", [1e4 * 1.05, 5e5])
def test_a_module_whose_rotation_is_not_the_layers_is_caught(monkeypatch: pytest.MonkeyPatch, theta: float) -> None:
    readiness, half = start_worker(monkeypatch, table_theta=theta)
    assert "self-test failed" in readiness.fault
    assert "layers.0.attn: K at another position is not a rotation of K" in readiness.fault
    assert half is None


def test_deployments_that_rotate_otherwise_have_other_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = start_worker(monkeypatch)
    again, _ = start_worker(monkeypatch)
    monkeypatch.setattr(Decoder, "__init__", _with_theta(Decoder.__init__, 2e4))
    other, _ = start_worker(monkeypatch)
    assert other.fault == ""
    assert first.layout_digest == again.layout_digest != other.layout_digest


def _with_theta(own: Any, theta: float) -> Any:
    return lambda self, block, scramble, *_: own(self, block, scramble, theta, theta)


class Misreading(Forward):
    """Reads 64-bit ids as 32-bit ones, as a graph compiled for the latter would: every other id is 0."""

    def compute(self, block_ids: torch.Tensor, ranges: list[TokenRange], token_ids: Any) -> None:
        misread = token_ids.astype(np.int64).view(np.int32)[: len(token_ids)].astype(np.int64)
        super().compute(block_ids, ranges, misread)


def test_a_forward_that_misreads_its_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    readiness, half = start_worker(monkeypatch, forward=Misreading)
    assert "reversed tokens do not give reversed V" in readiness.fault
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


@pytest.mark.parametrize(("error", "is_used"), [(None, False), (1e-3, True), (0.9, False), (float("nan"), False)])
def test_a_compiled_graph_is_used_only_if_it_computes_what_the_model_computes(
    monkeypatch: pytest.MonkeyPatch, error: float | None, is_used: bool
) -> None:
    readiness, half = start_worker(monkeypatch, forward=type("Compiled", (Forward,), {"error": error}))
    assert readiness.fault == ""
    assert half._sparse_forward.uses_graph is is_used
