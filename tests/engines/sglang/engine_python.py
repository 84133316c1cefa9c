"""Runs a script with the engine's own interpreter and gives back what it printed as its result."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scripts.engines import sglang
from scripts.engines.specs import sglang_missing
from scripts.private_venv import python_of


def result_of(script: Path, *arguments: str, timeout_s: float = 900.0) -> Any:
    missing = sglang_missing()
    if missing:
        pytest.skip(missing)
    done = subprocess.run(
        [str(python_of(sglang.RECIPE)), "-P", str(script), *arguments],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": sglang.CODE_PATH},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    rows = [row for row in done.stdout.splitlines() if row.startswith("RESULT ")]
    assert rows, done.stderr[-2000:]
    return json.loads(rows[-1].removeprefix("RESULT "))
