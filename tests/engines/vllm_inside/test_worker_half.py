"""The worker half with plain tensors: what lands where, what a fault reports, and that all ranks go together."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ranks import RankThreads

from semblend.contract import ContextRisk, Run, TokenRange
from semblend.integration.core.rank_group import ALONE, RankGroup
from semblend.integration.vllm import worker_half
from semblend.integration.vllm.commands import CaptureCommand, LoadCommand, StepCommands
from semblend.integration.vllm.transfers import HostTransfers
from semblend.integration.vllm.worker_half import WorkerHalf
from semblend.kv.donor_store import KVShape
from semblend.kv.host_store import HostStore
from semblend.kv.rope import LayerRotations, half_split, rotate_keys

pytestmark = pytest.mark.engine
LAYERS, HEADS, DIM, BLOCK, BLOCKS = 2, 2, 8, 16, 24
ROTATION = half_split(1e4, DIM)
RISK = ContextRisk(0, 0, 0.0)


class Cache:
    eight_bits = None

    def __init__(self) -> None:
        self.names = tuple(f"l{n}" for n in range(LAYERS))
        self.block_tokens = BLOCK
        self.device = torch.device("cpu")
        self.kv = torch.zeros(LAYERS, 2, BLOCKS * BLOCK, HEADS, DIM)

    def read(self, layer: int, block_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = (block_ids[:, None] * BLOCK + torch.arange(BLOCK)).reshape(-1)
        return self.kv[layer, 0, rows], self.kv[layer, 1, rows]

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        self.kv[layer, 0, slots], self.kv[layer, 1, slots] = keys, values

    def slots(self, block_ids: torch.Tensor, start: int, end: int) -> torch.Tensor:
        positions = torch.arange(start, end)
        return block_ids[positions // BLOCK] * BLOCK + positions % BLOCK


class Forward:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails = False

    def compute(self, block_ids: torch.Tensor, ranges: Any, token_ids: Any) -> None:
        self.calls.append((tuple(ranges), token_ids.tolist()))
        if self.fails:
            raise OSError("injected")


class Worker:
    def __init__(self, ranks: RankGroup = ALONE, ceiling: int | None = None, lends: bool = True) -> None:
        self.cache, self.forward = Cache(), Forward()
        self.store = HostStore(KVShape(LAYERS, HEADS, DIM, torch.float32), ceiling)
        log = logging.getLogger("semblend.tests")
        rotations, cache, forward = LayerRotations.same(ROTATION, LAYERS), self.cache, self.forward if lends else None
        transfers = HostTransfers(cache, self.store, rotations)  # type: ignore[arg-type]
        self.half = WorkerHalf(cache, transfers, forward, ranks, log)  # type: ignore[arg-type]

    def keep(self, donor_id: str, tokens: int) -> torch.Tensor:
        kv = torch.randn(LAYERS, 2, tokens, HEADS, DIM, generator=torch.Generator().manual_seed(tokens))
        self.store.begin(donor_id, tokens)
        for layer in range(LAYERS):
            self.store.write(donor_id, layer, 0, kv[layer, 0], kv[layer, 1])
        self.store.commit(donor_id)
        return kv


def command_of(runs: list[Run], start: int, end: int, blocks: list[int], broken: str = "") -> LoadCommand:
    gaps, position = [], start
    for run in runs:
        if run.target_start > position:
            gaps.append(TokenRange(position, run.target_start))
        position = run.target_end
    return LoadCommand("r", tuple(blocks), start, end, tuple(runs), tuple(gaps), np.arange(start, end), broken)


@given(st.permutations(range(1, BLOCKS)), st.integers(0, 60), st.integers(1, 80), st.integers(0, 90))
@settings(max_examples=50)
def test_rows_land_turned_at_their_slots_and_nowhere_else(
    blocks: list[int], donor_start: int, length: int, target: int
) -> None:
    worker = Worker()
    kv = worker.keep("d", 160)
    run = Run("d", donor_start, target, length, RISK)
    worker.half.load(StepCommands([command_of([run], 0, target + length, blocks)]))
    expected = torch.zeros_like(worker.cache.kv)
    for i in range(length):
        slot = blocks[(target + i) // BLOCK] * BLOCK + (target + i) % BLOCK
        for layer in range(LAYERS):
            key = kv[layer, 0, donor_start + i]
            expected[layer, 0, slot] = rotate_keys(key[None], run.shift, ROTATION)[0]
            expected[layer, 1, slot] = kv[layer, 1, donor_start + i]
    torch.testing.assert_close(worker.cache.kv, expected, atol=1e-5, rtol=1e-5)
    report = worker.half.take_report()
    assert report is not None
    assert report.loaded["r"].reused_tokens == length
    assert worker.half.take_invalid_blocks() == set()
    if target:
        assert worker.forward.calls == [((TokenRange(0, target),), list(range(target)))]


def broken_load(broken: str = "") -> StepCommands:
    runs = [Run("d", 0, 32, 16, RISK), Run("d" if broken else "gone", 0, 60, 16, RISK)]
    return StepCommands([command_of(runs, 32, 76, [3, 4, 5, 6, 7], broken)])


@pytest.mark.parametrize("broken", ["", "the scheduler could not write it"])
def test_a_claim_that_cannot_be_loaded_is_computed_in_the_same_step(broken: str) -> None:
    worker = Worker()
    worker.keep("d", 64)
    worker.half.load(broken_load(broken))
    assert worker.forward.calls == [((TokenRange(32, 76),), list(range(32, 76)))]
    assert worker.half.take_invalid_blocks() == set()
    report = worker.half.take_report()
    assert report is not None
    assert not report.load_faults
    loaded = report.loaded["r"]
    assert (loaded.reused_tokens, loaded.computed_tokens, loaded.runs, loaded.donor_ids) == (0, 44, 0, ())
    assert (broken or "gone is not stored") in loaded.fault


@pytest.mark.parametrize("lends", [True, False])
def test_a_claim_that_cannot_be_computed_either_reports_exactly_its_blocks(lends: bool) -> None:
    worker = Worker(lends=lends)
    worker.keep("d", 64)
    worker.forward.fails = True
    worker.half.load(broken_load())
    assert worker.half.take_invalid_blocks() == {5, 6, 7}
    report = worker.half.take_report()
    assert report is not None
    assert set(report.load_faults) == {"r"}
    assert not report.loaded
    assert worker.half.take_report() is None


def test_one_rank_s_fault_makes_all_ranks_compute_the_claim() -> None:
    group = RankThreads(2)
    workers = [Worker(group.of(rank)) for rank in range(2)]
    workers[0].keep("d", 64)
    commands = StepCommands([command_of([Run("d", 0, 16, 32, RISK)], 0, 48, [1, 2, 3])])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda worker: worker.half.load(commands), workers))
    reports = []
    for worker in workers:
        assert worker.forward.calls == [((TokenRange(0, 48),), list(range(48)))]
        assert worker.half.take_invalid_blocks() == set()
        report = worker.half.take_report()
        assert report is not None
        reports.append(report)
    for one, other in (reports, reports[::-1]):
        loaded = one.aggregate(other).loaded["r"]
        assert (loaded.reused_tokens, loaded.computed_tokens) == (0, 48)
        assert "d is not stored" in loaded.fault, "the reason comes from the rank that has it"


def capture(donor: str, tokens: int, *, release: bool = False, request: str = "r") -> CaptureCommand:
    return CaptureCommand(request, donor, tokens, 0, tokens, tuple(range(1, 1 + -(-tokens // BLOCK))), release)


def test_a_copy_that_fails_still_releases_its_request() -> None:
    worker = Worker(ceiling=1)
    worker.half.save(StepCommands(captures=[capture("d", 40, release=True)], releases=["other"]))
    assert worker.half.take_released() == {"r", "other"}
    assert worker.half.take_released() == set()
    report = worker.half.take_report()
    assert report is not None
    assert set(report.capture_faults) == {"d"}
    assert not report.stored


def test_a_copy_holds_what_the_blocks_held() -> None:
    worker = Worker()
    worker.cache.kv.normal_()
    worker.half.save(StepCommands(captures=[capture("d", 40)]))
    assert torch.equal(worker.store.read("d", 0, 40), worker.cache.kv[:, :, BLOCK : BLOCK + 40])
    report = worker.half.take_report()
    assert report is not None
    assert report.stored == {"d": 1}


def test_a_donor_is_loaded_in_the_step_that_drops_it_and_its_room_is_free_for_the_copy() -> None:
    worker = Worker(ceiling=64 * LAYERS * 2 * HEADS * DIM * 4)
    worker.keep("old", 64)
    load = command_of([Run("old", 0, 0, 32, RISK)], 0, 32, [1, 2])
    commands = StepCommands([load], [capture("new", 48)], ["old"])
    worker.half.load(commands)
    worker.half.save(commands)
    report = worker.half.take_report()
    assert report is not None
    assert not report.load_faults
    assert not report.capture_faults
    assert worker.store.contains(["new", "old"]) == [True, False]


def test_ranks_verify_their_own_heads_and_one_mismatch_makes_all_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    group = RankThreads(2)
    workers = [Worker(group.of(rank)) for rank in range(2)]
    for worker in workers:
        worker.keep("d", 64)
    checked = []

    def check(opened: Any, positions: Any, _eight_bits: Any) -> str | None:
        rank = next(at for at, worker in enumerate(workers) if opened._cache is worker.cache)
        checked.append((rank, positions.tolist()))
        return "first-layer K differs" if rank else None

    monkeypatch.setattr(worker_half, "find_mismatch", check)
    command = replace(command_of([Run("d", 0, 32, 16, RISK)], 32, 48, [3, 4, 5]), verified=np.array([33, 40]))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda worker: worker.half.load(StepCommands([command])), workers))
    assert sorted(checked) == [(0, [33, 40]), (1, [33, 40])]
    for worker in workers:
        assert worker.forward.calls == [((TokenRange(32, 48),), list(range(32, 48)))]
    faults = [worker.half.take_report() for worker in workers]
    assert all(report is not None and report.loaded["r"].reused_tokens == 0 for report in faults)
    assert faults[1] is not None
    assert "first-layer K differs" in faults[1].loaded["r"].fault
