"""Loads out of the engine's own blocks: the same bits as out of the store, on a host and on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.vllm_inside.strict_device import strict_device
from tests.engines.vllm_inside.test_transfers import BLOCK, DIM, HEADS, RISK, ROTATION, TARGETS, device, engine_cache

from semblend.contract import Run
from semblend.integration.vllm.commands import CaptureCommand
from semblend.integration.vllm.transfers import LAYER_GROUPS, HostTransfers
from semblend.kv.donor_store import KVShape, StoreError
from semblend.kv.host_store import HostStore
from semblend.kv.rope import LayerRotations

pytestmark = pytest.mark.engine
DONOR_BLOCKS = (1, 2, 4, 5, 6, 7)
DONOR_TOKENS = 90  # the last block is not full
FULL_BLOCKS = DONOR_TOKENS // BLOCK


def blocks_of(run: Run, reached: int) -> tuple[int, ...]:
    """The donor's full blocks from the run's first one on, at most ``reached`` of them."""
    last = -(-(run.donor_start + run.length) // BLOCK)
    return DONOR_BLOCKS[run.donor_start // BLOCK : min(last, FULL_BLOCKS)][:reached]


@st.composite
def runs(draw: st.DrawFn) -> list[Run]:
    taken, found = 0, []
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, DONOR_TOKENS - 2))
        length = draw(st.integers(1, min(DONOR_TOKENS - start, 60)))
        target = taken + draw(st.integers(0, 9))
        if target + length > len(TARGETS) * BLOCK:
            break
        found.append(Run("d", start, target, length, RISK))
        taken = target + length
    return found


def host(layers: int) -> tuple[torch.Tensor, HostTransfers]:
    memory, cache = engine_cache(layers)
    store = HostStore(KVShape(layers, HEADS, DIM, torch.float32))
    return memory, HostTransfers(cache, store, LayerRotations.same(ROTATION, layers))


def keep(transfers: Any) -> None:
    transfers.capture(CaptureCommand("r", "d", DONOR_TOKENS, 0, DONOR_TOKENS, DONOR_BLOCKS))
    transfers.end_step()
    assert [part.is_stored for part in transfers.take_copied()] == [True]


@settings(max_examples=60)
@given(
    runs=runs(), reached=st.lists(st.integers(0, 6), min_size=3, max_size=3), where=st.sampled_from(["host", "device"])
)
def test_blocks_of_the_cache_give_the_bits_of_the_store(runs: list[Run], reached: Sequence[int], where: str) -> None:
    results = []
    for cached in ([blocks_of(run, count) for run, count in zip(runs, reached, strict=False)], []):
        with strict_device() as costs:
            if where == "device":
                made = device(3, costs)
                memory, transfers = made.memory, made.transfers
            else:
                memory, transfers = host(3)  # type: ignore[assignment]
            keep(transfers)
            transfers.load(runs, TARGETS, cached)
        results.append(memory.clone())
    assert torch.equal(*results)


def test_a_donor_that_only_the_cache_holds_is_loaded_without_the_store() -> None:
    run = Run("never stored", 5, 40, 70, RISK)
    with strict_device() as costs:
        made = device(11, costs)
        kept = made.rows([DONOR_BLOCKS[p // BLOCK] * BLOCK + p % BLOCK for p in range(5, 75)])
        kept = (kept[0].clone(), kept[1].clone())
        costs.counts.clear()
        made.transfers.load([run], TARGETS, [blocks_of(run, 6)])
        assert costs.counts == {"copies to the device": 1, "launches": LAYER_GROUPS}
        _, values = made.rows([TARGETS[p // BLOCK] * BLOCK + p % BLOCK for p in range(40, 110)])
        assert torch.equal(values, kept[1])
        before = made.memory.clone()
        with pytest.raises(StoreError):  # its second half is neither in the cache nor in the store
            made.transfers.load([run], TARGETS, [blocks_of(run, 2)])
        assert np.array_equal(made.memory.numpy(), before.numpy())
