"""Runs a script of this folder with the engine's own interpreter and gives back what it printed as its result."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scripts.engines import vllm
from scripts.engines.specs import vllm_missing
from scripts.private_venv import python_of

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def result_of(script: str, *arguments: str, timeout_s: float = 900.0) -> Any:
    missing = vllm_missing()
    if missing:
        pytest.skip(missing)
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "PYTHONPATH": str(ROOT / "src"),
    }
    done = subprocess.run(
        [str(python_of(vllm.RECIPE)), "-P", str(HERE / script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    rows = [row for row in done.stdout.splitlines() if row.startswith("RESULT ")]
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(rows) == 1, done.stdout[-4000:]
    return json.loads(rows[0].removeprefix("RESULT "))
