"""vLLM's GPU code path without a GPU: a representative part of ``matrix.py``, and the mutation that it must notice."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from tests.engines.gpusim.configuration import Backend, Simulation
from tests.engines.gpusim.matrix import COMPILED, MATRIX, fault_problems_of, problems_of
from tests.engines.gpusim.running import measure, missing

pytestmark = [pytest.mark.engine, pytest.mark.slow]
needs_engine = pytest.mark.skipif(bool(missing()), reason=missing() or "the engine is installed")

DEFAULT_ON_HOPPER = Simulation(backend=Backend.FLASH_ATTENTION_3)
FLASHINFER = Simulation(backend=Backend.FLASHINFER, runner=1, is_async=False, block_tokens=32)


def test_the_matrix_holds_every_pair_of_settings() -> None:
    settings: dict[str, set[Any]] = {
        "backend": set(Backend),
        "runner": {1, 2},
        "is_async": {False, True},
        "block_tokens": {16, 32, 64},
        "ranks": {1, 2},
    }
    for one, other in combinations(settings, 2):
        found = {(getattr(row, one), getattr(row, other)) for row in MATRIX}
        assert found == set(product(settings[one], settings[other]))


@needs_engine
def test_the_default_of_a_hopper_gpu_blends_and_keeps_failed_claims(tmp_path: Path) -> None:
    result = measure(DEFAULT_ON_HOPPER, tmp_path, "blend", "everything", "crowd", "faults", "shared_builders")
    assert result["start"] == {
        "scheduler": "AsyncScheduler",
        "is_v2": True,
        "block_tokens": 16,
        "layout": "KVCacheLayout.LBNHC",
        "builder": "FlashAttentionMetadataBuilder",
        "uses_graph": False,
    }
    assert not list(problems_of(result))
    assert not list(fault_problems_of(result["faults"]))
    assert result["shared_builders"] == {
        "kind": "KernelContractError",
        "message": "launched with the schedule of another batch",
    }


@needs_engine
def test_flashinfer_on_the_first_runner_blends(tmp_path: Path) -> None:
    result = measure(FLASHINFER, tmp_path, "blend", "everything", "crowd", "shared_builders")
    assert (result["start"]["builder"], result["start"]["is_v2"]) == ("FlashInferMetadataBuilder", False)
    assert result["start"]["scheduler"] == "Scheduler"
    assert not list(problems_of(result))
    assert result["shared_builders"] == {
        "kind": "KernelContractError",
        "message": "run with the plan of another batch",
    }


@pytest.mark.nightly  # minutes of compiling; the passes themselves are those of the tests above
@needs_engine
def test_gaps_go_through_the_compiled_graph(tmp_path: Path) -> None:
    assert not list(problems_of(measure(COMPILED, tmp_path, "blend", "everything", "crowd")))


@pytest.mark.nightly  # two engines; the inside tests hold the law that ranks act alike
@needs_engine
def test_two_ranks_compute_together_what_one_of_them_cannot_load(tmp_path: Path) -> None:
    two_ranks = Simulation(backend=Backend.FLASH_ATTENTION_3, runner=1, ranks=2)
    assert not list(fault_problems_of(measure(two_ranks, tmp_path, "faults")["faults"]))
