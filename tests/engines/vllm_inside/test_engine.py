"""Loads, the sparse forward and repairs inside the real engine, against blends and prefills made by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow]
HERE = Path(__file__).parent


def result_of(ranks: int, *program: str) -> Any:
    """What a program in a process of its own found out, with a core for each rank."""
    environment = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "SEMBLEND_EMBEDDER": "none",
        "VLLM_CPU_OMP_THREADS_BIND": "|".join(map(str, sorted(os.sched_getaffinity(0))[:ranks])),
    }
    done = subprocess.run(
        [sys.executable, *program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    rows = [row for row in done.stdout.splitlines() if row.startswith("RESULT ")]
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(rows) == 1, done.stdout[-4000:]
    return json.loads(rows[0].removeprefix("RESULT "))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Any]:
    """The same requests on one rank and, where there are two cores, on two."""
    ranks = [(1, 32), (2, 64)][: len(os.sched_getaffinity(0))]
    program = ("-P", str(HERE / "blend_tiny.py"))
    folders = {count: str(tmp_path_factory.mktemp(f"ranks{count}")) for count, _ in ranks}
    return {count: result_of(count, *program, folders[count], str(count), str(block)) for count, block in ranks}


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_blend_is_what_it_claims_to_be(results: dict[int, Any], ranks: int) -> None:
    if ranks not in results:
        pytest.skip("each rank needs a core of its own")
    result = results[ranks]
    assert result["donor"]["donor_id"], "stored on every rank, or it could not be found"
    assert result["same_context"]["reused_tokens"] == 300
    assert result["same_context_error"] < 2e-3, "KV of the same context is the engine's own"
    assert result["blended"]["outcome"] == "backend_materialized_reuse"
    assert result["blended"]["computed_tokens"] == 40
    assert result["from_cache"]["runs"] == result["blended"]["runs"]
    assert result["cache_against_store"] == 0.0, "the engine's own blocks hold the bits of the copy"
    assert result["blend_error"] < 5e-3, "loaded, moved and computed as a blend made by hand"
    assert result["blend_against_cold"] > 20 * result["blend_error"], "the oracle tells a blend from a cold answer"


def test_two_ranks_select_what_one_rank_selects(results: dict[int, Any]) -> None:
    if 2 not in results:
        pytest.skip("each rank needs a core of its own")
    one, two = (results[ranks]["selected"] for ranks in (1, 2))
    assert one["outcome"] == two["outcome"] == "backend_materialized_reuse"
    assert one["reused_tokens"] == two["reused_tokens"] == 240
    assert one["computed_tokens"] == two["computed_tokens"] == 100
    answers = [results[ranks]["selected_logprobs"] for ranks in (1, 2)]
    error = max(abs(a - b) for a, b in zip(*answers, strict=True))
    assert error < 1e-3, "other positions recomputed would give another answer"
    assert error < results[1]["blend_against_cold"] / 20, "the answer depends on what is recomputed"


SCHEDULES = ("-m", "tests.engines.vllm_inside.engine_schedules")


def test_random_schedules_on_the_engine_publish_nothing_inexact() -> None:
    found = result_of(1, *SCHEDULES, "--schedules", "4")
    assert not found["inexact"]
    assert found["blended"] >= 3
    assert found["repaired slices"] >= 6
    assert found["blocks"] >= 100


def test_these_schedules_notice_blocks_that_are_published_early() -> None:
    assert "in block" in result_of(1, *SCHEDULES, "--schedules", "8", "--plant")["inexact"]
