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
from tests.engines.vllm_inside.world import Vote

from semblend.contract import ContextRisk, Run, TokenRange
from semblend.integration.vllm.commands import CaptureCommand, LoadCommand, Recompute, StepCommands
from semblend.integration.vllm.worker_half import WorkerHalf
from semblend.kv.donor_store import KVShape
from semblend.kv.host_store import HostStore
from semblend.kv.rope import half_split, rotate_keys
from semblend.plan.selection import Selection

pytestmark = pytest.mark.engine
LAYERS, HEADS, DIM, BLOCK, BLOCKS = 2, 2, 8, 16, 24
ROTATION = half_split(1e4, DIM)
RISK = ContextRisk(0, 0, 0.0)


class Cache:
    def __init__(self) -> None:
        self.names = tuple(f"l{n}" for n in range(LAYERS))
        self.block_tokens = BLOCK
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

    def compute(self, block_ids: torch.Tensor, ranges: Any, token_ids: Any) -> None:
        self.calls.append((tuple(ranges), token_ids.tolist()))


class Worker:
    def __init__(self, agree: Any = bool, ceiling: int | None = None) -> None:
        self.cache, self.forward = Cache(), Forward()
        self.store = HostStore(KVShape(LAYERS, HEADS, DIM, torch.float32), ceiling)
        log = logging.getLogger("semblend.tests")
        self.half = WorkerHalf(self.cache, self.store, ROTATION, self.forward, agree, log)  # type: ignore[arg-type]

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
    ids = np.concatenate([np.arange(h.start, h.end) for h in gaps]) if gaps else np.empty(0, np.int64)
    return LoadCommand("r", tuple(blocks), start, end, tuple(runs), tuple(gaps), ids, broken)


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


@pytest.mark.parametrize("broken", ["", "the scheduler could not write it"])
def test_a_broken_load_reports_exactly_the_claimed_blocks(broken: str) -> None:
    worker = Worker()
    worker.keep("d", 64)
    missing = "d" if broken else "gone"
    runs = [Run("d", 0, 32, 16, RISK), Run(missing, 0, 60, 16, RISK)]
    worker.half.load(StepCommands([command_of(runs, 32, 76, [3, 4, 5, 6, 7], broken)]))
    assert worker.half.take_invalid_blocks() == {5, 6, 7}
    report = worker.half.take_report()
    assert report is not None
    assert set(report.load_faults) == {"r"}
    assert not report.loaded
    assert not worker.forward.calls
    assert worker.half.take_report() is None


def test_one_rank_s_fault_stops_all_ranks_before_the_forward() -> None:
    vote = Vote(2)
    workers = [Worker(vote.of(rank)) for rank in range(2)]
    workers[0].keep("d", 64)
    commands = StepCommands([command_of([Run("d", 0, 16, 32, RISK)], 0, 48, [1, 2, 3])])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda worker: worker.half.load(commands), workers))
    for worker in workers:
        assert not worker.forward.calls
        assert worker.half.take_invalid_blocks() == {1, 2, 3}
        report = worker.half.take_report()
        assert report is not None
        assert set(report.load_faults) == {"r"}


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


def test_ranks_that_would_choose_differently_break_the_promise_before_any_forward() -> None:
    worker = Worker()
    worker.half._is_alone = False
    worker.keep("d", 64)
    command = command_of([Run("d", 0, 32, 16, RISK)], 32, 48, [3, 4, 5])
    recompute = Recompute(Selection("first", 0.5), command.block_ids, np.arange(32, 48), np.arange(48, 50))
    worker.half.load(StepCommands([replace(command, recompute=recompute)]))
    report = worker.half.take_report()
    assert report is not None
    assert "select different tokens" in report.load_faults["r"]
    assert not worker.forward.calls
