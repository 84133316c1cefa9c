"""``kvmend doctor --gpu``: runs the steps, each group in a process of its own, and assembles the evidence."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from semblend import __version__
from semblend.contract.gpu_evidence import GpuEvidence, Step, StepStatus
from semblend.doctor.serve_command import ServeCommand
from semblend.settings import as_environment

SIZES: Final = (1024, 2048, 4096, 8192)
REPEATS: Final = 5
LIMIT_S: Final = 3600.0
_ENGINE_VARIABLES: Final = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # faults are planted in this process; the backend is read from it
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    **as_environment(embedder="none"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRequest:
    """``command`` has our flags already. ``dtype`` is the tiny model's: attention kernels of GPUs need 16 bits."""

    command: ServeCommand
    engine_version: str
    architecture: str
    sizes: tuple[int, ...] = SIZES
    repeats: int = REPEATS
    dtype: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


# In: name of a scenario and its request. Out: step results by name.
RunScenario = Callable[[str, Mapping[str, Any]], dict[str, Any]]


class ScenarioError(Exception):
    """The process of a step ended without a result; the message ends with the last lines it printed."""


def run_scenario(name: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """In a process of its own, so that its GPU memory is free afterwards."""
    assigned = [f"{key}={value}" for key, value in _ENGINE_VARIABLES.items()]
    command = ["env", *assigned, sys.executable, "-P", "-m", "semblend.doctor.gpu.scenario", name]
    try:
        done = subprocess.run(
            [*command, json.dumps(dict(request))], capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise ScenarioError(f"not finished after {LIMIT_S:.0f} s") from None
    rows = [row for row in done.stdout.splitlines() if row.startswith("RESULT ")]
    if done.returncode or len(rows) != 1:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise ScenarioError(f"exit code {done.returncode}: {' | '.join(lines[-4:])[-1500:]}")
    results: dict[str, Any] = json.loads(rows[0].removeprefix("RESULT "))
    return results


def prove(request: ProofRequest, progress: Callable[[str], None], run: RunScenario = run_scenario) -> GpuEvidence:
    """``progress`` gets a line per group and a line per step."""
    (machine,) = steps = _run(("machine",), "machine", {}, progress, run)
    if machine.status is not StepStatus.PASSED:
        raise ConfigurationError(f"the engine cannot be imported: {machine.detail}")
    dtype = request.dtype or ("float32" if machine.figures["device_type"] == "cpu" else "bfloat16")
    tiny = {"dtype": dtype, "options": dict(request.options)}
    steps += _run(("blend", "gaps", "faults", "neighbours"), "correctness", tiny, progress, run)
    served = {"model": request.command.model, "flags": list(request.command.flags)}
    measured = {**served, "sizes": list(request.sizes), "repeats": request.repeats}
    steps += _run(("ttft",), "ttft", measured, progress, run)
    return _evidence(request, steps)


def _run(
    names: tuple[str, ...],
    scenario: str,
    request: Mapping[str, Any],
    progress: Callable[[str], None],
    run: RunScenario,
) -> tuple[Step, ...]:
    """The steps that one process makes."""
    progress(f"{'+'.join(names)}: running")
    began = time.monotonic()
    results: dict[str, Any] = {}
    why = "the step gave no result"
    try:
        results = run(scenario, request)
    except ScenarioError as error:
        why = str(error)
    seconds = (time.monotonic() - began) / len(names)
    steps = tuple(_step(name, results.get(name), seconds, why) for name in names)
    for step in steps:
        progress(f"{step.name}: {step.status}, {step.seconds:.0f} s {step.detail}".rstrip())
    return steps


def _step(name: str, result: Any, seconds: float, why: str) -> Step:
    if not isinstance(result, dict):
        return Step(name, StepStatus.FAILED, seconds, why)
    status = StepStatus.PASSED if result["passed"] else StepStatus.FAILED
    return Step(name, status, seconds, str(result["detail"]), dict(result["figures"]))


def _evidence(request: ProofRequest, steps: tuple[Step, ...]) -> GpuEvidence:
    by_name = {step.name: step for step in steps}
    machine = by_name["machine"].figures
    served = by_name["ttft"].figures or by_name["blend"].figures
    return GpuEvidence(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        device=str(machine["device"]),
        device_type=str(machine["device_type"]),
        backend=str(served.get("backend", "unknown")),
        model=Path(request.command.model).name,
        architecture=request.architecture,
        engine=request.command.engine,
        engine_version=request.engine_version,
        semblend_version=__version__,
        configuration={"flags": list(request.command.flags), "sizes": list(request.sizes), "repeats": request.repeats},
        machine={**machine, "python": platform.python_version(), "system": platform.platform()},
        steps=steps,
    )
