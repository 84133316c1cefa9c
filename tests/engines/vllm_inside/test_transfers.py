"""Loads and captures on a strict pretend device: what lands where, and what each costs."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.engines.vllm_inside.strict_device import Costs, PretendStreams, strict_device, to_device, to_host

from semblend.contract import ContextRisk, Run
from semblend.integration.vllm.attention_cache import AttentionCache
from semblend.integration.vllm.commands import CaptureCommand
from semblend.integration.vllm.transfers import (
    LAYER_GROUPS,
    DeviceTransfers,
    HostTransfers,
    TransferError,
    check_transfers,
)
from semblend.kv.arena import Arena, arena_bytes
from semblend.kv.donor_store import KVShape, StoreError
from semblend.kv.host_store import HostStore
from semblend.kv.rope import LayerRotations, half_split, rotate_keys

pytestmark = pytest.mark.engine
HEADS, DIM, BLOCK, BLOCKS = 2, 8, 16, 24
ROTATION = half_split(1e4, DIM)
RISK = ContextRisk(0, 0, 0.0)


def update(layer: Any, keys: torch.Tensor, values: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """As FlashAttention's backend does it on a device."""
    key_cache, value_cache = cache.transpose(1, 2).split(DIM, -1)
    key_cache[slots // BLOCK, slots % BLOCK] = keys
    value_cache[slots // BLOCK, slots % BLOCK] = values


def engine_cache(layers: int) -> tuple[torch.Tensor, AttentionCache]:
    """Blocks as on CUDA: logically [blocks, heads, tokens, K and V], tokens before heads in memory."""
    memory = torch.randn((layers, BLOCKS, BLOCK, HEADS, 2 * DIM), generator=torch.Generator().manual_seed(0))
    impl = SimpleNamespace(do_kv_cache_update=update)
    made = {f"l{n}": SimpleNamespace(kv_cache=to_device(memory[n].transpose(1, 2)), impl=impl) for n in range(layers)}
    cache = AttentionCache(made, list(made), BLOCK)
    cache.probe(BLOCKS - 1, HEADS, DIM)
    return memory, cache


@dataclass
class Device:
    layers: int
    costs: Costs
    cache: AttentionCache
    memory: torch.Tensor  # [layers, blocks, block_tokens, heads, K and V]
    transfers: DeviceTransfers

    def rows(self, slots: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        flat = self.memory.view(self.layers, BLOCKS * BLOCK, HEADS, 2 * DIM)[:, slots]
        return flat[..., :DIM], flat[..., DIM:]

    def keep(self, donor_id: str, tokens: int, block: int = 1) -> None:
        blocks = tuple(range(block, block - -tokens // BLOCK + 1))
        self.transfers.capture(CaptureCommand("r", donor_id, tokens, 0, tokens, blocks))
        self.transfers.end_step()
        [done] = self.transfers.take_copied()
        assert done.is_stored


def device(layers: int, costs: Costs) -> Device:
    memory, cache = engine_cache(layers)
    shape = KVShape(layers, HEADS, DIM, torch.float32)
    budget = 400 * shape.bytes_per_token
    arena = Arena(costs.pinned(arena_bytes(shape, budget)), shape, budget)
    transfers = DeviceTransfers(cache.pages(), arena, LayerRotations.same(ROTATION, layers), PretendStreams(costs))
    costs.counts.clear()
    return Device(layers, costs, cache, memory, transfers)


def runs_of(count: int) -> list[Run]:
    return [Run("d", 7 * n, 100 + 5 * n, 5, RISK) for n in range(count)]


TARGETS = (9, 20, 3, 11, 15, 17, 12, 19, 14, 10, 18, 13)


@pytest.mark.parametrize("layers", [2, 11])
@pytest.mark.parametrize("runs", [1, 12])
def test_a_load_is_one_copy_and_launches_that_depend_on_neither_runs_nor_layers(layers: int, runs: int) -> None:
    with strict_device() as costs:
        made = device(layers, costs)
        made.keep("d", 96)
        kept = made.rows(list(range(BLOCK, BLOCK + 96)))
        kept = (kept[0].clone(), kept[1].clone())
        costs.counts.clear()
        made.transfers.load(runs_of(runs), TARGETS)
    assert costs.counts == {"copies to the device": 1, "launches": min(layers, LAYER_GROUPS)}
    for run in runs_of(runs):
        at = slice(run.donor_start, run.donor_start + run.length)
        positions = range(run.target_start, run.target_end)
        keys, values = made.rows([TARGETS[p // BLOCK] * BLOCK + p % BLOCK for p in positions])
        torch.testing.assert_close(keys, rotate_keys(kept[0][:, at], run.shift, ROTATION))
        assert torch.equal(values, kept[1][:, at])


@pytest.mark.parametrize("captures", [1, 3])
def test_the_captures_of_a_step_are_one_copy_and_one_launch(captures: int) -> None:
    with strict_device() as costs:
        made = device(5, costs)
        for n in range(captures):
            blocks = (1 + 2 * n, 2 + 2 * n)
            made.transfers.capture(CaptureCommand(f"r{n}", f"d{n}", 30, 0, 30, blocks))
        made.transfers.end_step()
        done = made.transfers.take_copied()
    assert costs.counts == {"copies to the device": 1, "launches": 1}
    assert [(part.command.donor_id, part.is_stored) for part in done] == [(f"d{n}", True) for n in range(captures)]


def test_a_donor_is_found_in_slices_once_all_of_them_are_copied() -> None:
    with strict_device() as costs:
        made = device(2, costs)
        made.transfers.capture(CaptureCommand("r", "d", 40, 0, 32, (1, 2)))
        made.transfers.end_step()
        assert [part.is_stored for part in made.transfers.take_copied()] == [False]
        with pytest.raises(StoreError, match="not committed"):
            made.transfers.load([Run("d", 0, 100, 32, RISK)], TARGETS)
        made.transfers.capture(CaptureCommand("r", "d", 40, 32, 8, (3,), release=True))
        made.transfers.end_step()
        assert [part.is_stored for part in made.transfers.take_copied()] == [True]
        made.transfers.load([Run("d", 0, 100, 40, RISK)], TARGETS)
        made.transfers.drop("d")
        with pytest.raises(StoreError, match="not stored"):
            made.transfers.load([Run("d", 0, 100, 40, RISK)], TARGETS)


def test_a_load_with_a_missing_donor_writes_nothing() -> None:
    with strict_device() as costs:
        made = device(2, costs)
        made.keep("d", 96)
        before = made.memory.clone()
        costs.counts.clear()
        with pytest.raises(StoreError, match="gone"):
            made.transfers.load([*runs_of(2), Run("gone", 0, 120, 4, RISK)], TARGETS)
    assert not costs.counts
    assert torch.equal(made.memory, before)


def test_the_round_trip_at_start_up_passes_and_leaves_the_blocks_empty() -> None:
    with strict_device() as costs:
        made = device(3, costs)
        before = made.memory.clone()
        check_transfers(made.cache, made.transfers, LayerRotations.same(ROTATION, 3))
    assert torch.equal(made.memory[:, :-2], before[:, :-2])
    assert not made.memory[:, -2:].any()


def test_the_round_trip_at_start_up_refuses_a_wrong_rotation() -> None:
    with strict_device() as costs:
        made = device(3, costs)
        other = LayerRotations([ROTATION, ROTATION, half_split(1e6, DIM)])
        with pytest.raises(TransferError, match="layer 2 came back"):
            check_transfers(made.cache, made.transfers, other)


@pytest.mark.parametrize("runs", [1, 4])
def test_without_a_stream_of_ours_every_run_and_layer_costs(runs: int) -> None:
    """What loads cost where memory cannot be pinned: the figures that the stream of ours is for."""
    layers = 3
    with strict_device() as costs:
        _, cache = engine_cache(layers)
        store = HostStore(KVShape(layers, HEADS, DIM, torch.float32))
        store.begin("d", 96)
        for layer in range(layers):
            store.write("d", layer, 0, torch.ones(96, HEADS, DIM), torch.ones(96, HEADS, DIM))
        store.commit("d")
        costs.counts.clear()
        HostTransfers(cache, store, LayerRotations.same(ROTATION, layers)).load(runs_of(runs), TARGETS)
    print(f"{runs} runs, {layers} layers: {dict(costs.counts)}")
    assert costs.counts["synchronisations"] >= 2 * runs
    assert costs.counts["launches"] >= 2 * runs * layers


def test_the_pretend_device_is_strict_and_counts() -> None:
    with strict_device() as costs:
        host, there = torch.ones(4), to_device(torch.zeros(4))
        with pytest.raises(RuntimeError, match="one device"):
            there + host
        there.add_(1)
        there[torch.tensor([1])].sum().item()
        moved = host.to(there.device)
    assert to_host(moved).tolist() == [1.0] * 4
    assert costs.counts == {"launches": 3, "synchronisations": 3, "copies to the device": 2}
