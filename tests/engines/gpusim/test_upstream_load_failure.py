"""vLLM's own recovery from a failed load, without SemBlend: expected failures that tell when upstream has fixed them.

See docs/upstream/vllm-load-failure.md. The first case is the control: there the recovery works.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scripts.engines import vllm
from scripts.private_venv import python_of
from tests.engines.gpusim.configuration import Backend, Simulation
from tests.engines.gpusim.running import EngineFailedError, missing

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly]  # the engine alone: nothing of ours runs
needs_engine = pytest.mark.skipif(bool(missing()), reason=missing() or "the engine is installed")
HERE = Path(__file__).parent
# What the engine dies of, by runner: tokens after the prompt's end; a length that is not the request's.
SYMPTOMS = {1: "IndexError: index out of range in self", 2: "a context is longer than max_seqlen_k"}


class RecoveryFailedError(Exception):
    """The engine died of the known defect, or answered differently from cold."""


def answers(folder: Path, runner: int, *, is_async: bool) -> dict[str, Any]:
    """The cold answer and the one after a failed load. An engine that dies of anything unknown is not expected."""
    simulation = Simulation(backend=Backend.FLASH_ATTENTION_2, runner=runner, is_async=is_async, block_tokens=32)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "PYTHON"))},
        **simulation.environment(folder / "site"),
        "VLLM_CACHE_ROOT": str(folder / "cache"),
    }
    script, scheduling = HERE / "fail_a_load.py", "async" if is_async else "sync"
    done = subprocess.run(
        [str(python_of(vllm.RECIPE)), "-P", str(script), str(folder / "model"), scheduling],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    rows = [row for row in done.stdout.splitlines() if row.startswith("RESULT ")]
    if done.returncode and SYMPTOMS[runner] in done.stderr:
        raise RecoveryFailedError(SYMPTOMS[runner])
    if done.returncode or len(rows) != 1:
        raise EngineFailedError(f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
    result: dict[str, Any] = json.loads(rows[0].removeprefix("RESULT "))
    assert (result["runner"], result["async"]) == (f"V{runner}", is_async)
    return result


@needs_engine
def test_v1_without_async_scheduling_recovers(tmp_path: Path) -> None:
    result = answers(tmp_path, 1, is_async=False)
    assert result["failed"] == result["cold"]


@needs_engine
@pytest.mark.xfail(raises=RecoveryFailedError, strict=True, reason="vLLM issues 49250, 45138, 34484")
@pytest.mark.parametrize("runner", [1, 2])
def test_async_scheduling_recovers(tmp_path: Path, runner: int) -> None:
    result = answers(tmp_path, runner, is_async=True)
    if result["failed"] != result["cold"]:
        raise RecoveryFailedError(f"{result['failed']} instead of {result['cold']}")
