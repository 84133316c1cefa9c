"""Starts an engine on the simulated GPU in a process of its own, and gives back what it measured."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from scripts.engines import vllm
from scripts.engines.specs import vllm_missing
from scripts.private_venv import ROOT, python_of
from tests.engines.gpusim.configuration import Simulation

DRIVER: Final = Path(__file__).with_name("drive.py")
TIMEOUT_S: Final = 1800.0


class EngineFailedError(Exception):
    """The engine ended before it could print its result; the message is the end of its log."""


def missing() -> str:
    """Why nothing can be simulated here; empty if everything can."""
    return vllm_missing() or ""


def measure(simulation: Simulation, folder: Path, *scenarios: str) -> dict[str, Any]:
    """Results by scenario, with the seconds it took."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "PYTHON"))},
        **simulation.environment(folder / "site"),
        "FAULT_FILE": str(folder / "fault"),
        "VLLM_CACHE_ROOT": str(ROOT / ".cache" / "engines" / "vllm"),
    }
    asked = {**dataclasses.asdict(simulation), "backend": simulation.backend.value}
    started = time.monotonic()
    done = subprocess.run(
        [str(python_of(vllm.RECIPE)), "-P", str(DRIVER), str(folder / "model"), json.dumps(asked), *scenarios],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    rows = [row for row in done.stdout.splitlines() if row.startswith("RESULT ")]
    if done.returncode or len(rows) != 1:
        raise EngineFailedError(f"{simulation.name}: {done.stdout[-2000:]}\n{done.stderr[-8000:]}")
    result: dict[str, Any] = json.loads(rows[0].removeprefix("RESULT "))
    return {**result, "is_compiled": simulation.is_compiled, "seconds": time.monotonic() - started}
