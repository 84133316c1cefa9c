from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from semblend.contract import FaultContained
from semblend.integration.border import Border
from semblend.integration.trtllm.commands import LoadCommand, SaveCommand, StepCommands
from semblend.integration.trtllm.link import Link, Loaded, Saved, SaveFailed
from semblend.integration.trtllm.worker_half import WorkerHalf

LOG = logging.getLogger("trtllm worker")


def numpy_pool() -> Any:
    pool = np.random.default_rng(1).normal(size=(8, 2, 3, 16)).astype(np.float32)
    pool[7, 0, 0, 0] = np.nan
    return pool


def torch_pool(dtype: str) -> Any:
    torch = pytest.importorskip("torch")
    return torch.from_numpy(numpy_pool()).to(getattr(torch, dtype))


POOLS = [
    pytest.param(numpy_pool, id="numpy"),
    pytest.param(lambda: torch_pool("bfloat16"), id="bfloat16", marks=pytest.mark.models),
    pytest.param(lambda: torch_pool("float8_e4m3fn"), id="float8", marks=pytest.mark.models),
]


def raw(page: Any) -> bytes:
    if isinstance(page, np.ndarray):
        return page.tobytes()
    torch = pytest.importorskip("torch")
    return bytes(page.reshape(-1).view(torch.uint8).tolist())


def half_of(pool: Any) -> tuple[WorkerHalf, Link, list[FaultContained]]:
    faults: list[FaultContained] = []
    link = Link(SimpleNamespace())
    half = WorkerHalf(link, Border(faults.append, LOG))
    half.register(pool)
    return half, link, faults


@pytest.mark.parametrize("make", POOLS)
def test_pages_return_byte_for_byte_and_the_test_page_is_as_before(make: Any) -> None:
    pool = make()
    test_page = raw(pool[7])
    half, link, faults = half_of(pool)
    assert (link.fault, faults) == ("", [])
    assert raw(pool[7]) == test_page
    assert link.page_bytes == len(test_page)
    saved = [raw(pool[n]) for n in (2, 5, 1)]
    half.save(StepCommands(saves=(SaveCommand("d", (2, 5, 1)),)), None)
    for n in range(8):
        pool[n] = 0
    half.load(StepCommands(loads=(LoadCommand(4, "d", 1, (3, 6)),)), None)
    assert [raw(pool[n]) for n in (3, 6)] == saved[1:]
    assert raw(pool[2]) == bytes(len(test_page)), "nothing else was written"
    first, second = link.take()
    assert first == Saved("d")
    assert isinstance(second, Loaded)
    assert second.request_id == 4


def test_a_cache_that_does_not_keep_what_is_written_is_refused() -> None:
    class Forgetful:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, place: int) -> Any:
            return np.zeros(16, np.float32)

        def __setitem__(self, place: int, page: Any) -> None:
            pass

    _, link, _ = half_of(Forgetful())
    assert link.fault == "a page was not copied out and back unchanged"


def test_a_cache_that_cannot_be_tested_is_refused_and_reported() -> None:
    _, link, faults = half_of(object())
    assert link.fault
    assert faults[0].stage == "self_test"


def test_loads_come_before_drops_and_a_missing_donor_is_never_papered_over() -> None:
    half, _, _ = half_of(numpy_pool())
    half.save(StepCommands(saves=(SaveCommand("d", (1, 2)),)), None)
    half.load(StepCommands(loads=(LoadCommand(1, "d", 0, (4, 5)),), drops=("d",)), None)
    assert len(half) == 0
    with pytest.raises(KeyError):
        half.load(StepCommands(loads=(LoadCommand(2, "d", 0, (4,)),)), None)
    half.save(StepCommands(saves=(SaveCommand("e", (1,)),)), None)
    with pytest.raises(RuntimeError, match="1 of 2"):
        half.load(StepCommands(loads=(LoadCommand(3, "e", 0, (4, 5)),)), None)


def test_a_save_that_breaks_is_reported_and_fails_no_step() -> None:
    half, link, faults = half_of(numpy_pool())
    half.save(StepCommands(saves=(SaveCommand("d", (1, 99)),)), None)
    assert link.take() == [SaveFailed("d")]
    assert [fault.stage for fault in faults] == ["save"]


@pytest.mark.parametrize("make", POOLS)
@pytest.mark.parametrize("place", [-1, -8, 8])
def test_a_block_without_a_page_is_neither_saved_nor_written(make: Any, place: int) -> None:
    """The engine reports it as -1, which every array reads as its last page: another request's KV."""
    pool = make()
    half, link, faults = half_of(pool)
    half.save(StepCommands(saves=(SaveCommand("d", (1, place)),)), None)
    assert link.take() == [SaveFailed("d")]
    assert f"page {place}" in faults[0].error
    assert len(half) == 0
    half.save(StepCommands(saves=(SaveCommand("e", (1, 2)),)), None)
    before = [raw(pool[n]) for n in range(8)]
    with pytest.raises(IndexError, match=f"page {place}"):
        half.load(StepCommands(loads=(LoadCommand(1, "e", 0, (3, place)),)), None)
    assert [raw(pool[n]) for n in range(8)] == before, "checked before anything is written"
