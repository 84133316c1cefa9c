"""The sparse forward and the loads inside the real engine, on one and on two ranks, against a blend made by hand."""

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


def result_of(directory: Path, ranks: int, block: int) -> Any:
    environment = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "SEMBLEND_EMBEDDER": "none",
        "VLLM_CPU_OMP_THREADS_BIND": "|".join(map(str, sorted(os.sched_getaffinity(0))[:ranks])),
    }
    done = subprocess.run(
        [sys.executable, "-P", str(HERE / "blend_tiny.py"), str(directory), str(ranks), str(block)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    rows = [row for row in done.stdout.splitlines() if row.startswith("RESULT ")]
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(rows) == 1, done.stdout[-4000:]
    return json.loads(rows[0].removeprefix("RESULT "))


@pytest.mark.parametrize(("ranks", "block"), [(1, 32), (2, 64)])
def test_a_blend_is_what_it_claims_to_be(tmp_path: Path, ranks: int, block: int) -> None:
    if len(os.sched_getaffinity(0)) < ranks:
        pytest.skip("each rank needs a core of its own")
    result = result_of(tmp_path, ranks, block)
    assert result["donor"]["donor_id"], "stored on every rank, or it could not be found"
    assert result["same_context"]["reused_tokens"] == 300
    assert result["same_context_error"] < 2e-3, "KV of the same context is the engine's own"
    assert result["blended"]["outcome"] == "backend_materialized_reuse"
    assert result["blended"]["computed_tokens"] == 40
    assert result["blend_error"] < 5e-3, "loaded, moved and computed as a blend made by hand"
    assert result["blend_against_cold"] > 20 * result["blend_error"], "the oracle tells a blend from a cold answer"
