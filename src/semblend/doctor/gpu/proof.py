"""``kvmend doctor --gpu``: runs the steps, each in a process of its own, and assembles the evidence.

Finished steps are kept in a folder; a run that was interrupted continues after them. A step is repeated if engine,
SemBlend, model or flags changed since.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.records import as_plain
from semblend import __version__
from semblend.contract.gpu_evidence import EvidenceError, GpuEvidence, Step, StepStatus, decode_step
from semblend.doctor.serve_command import ServeCommand
from semblend.settings import as_environment

SIZES: Final = (1024, 2048, 4096, 8192)
REPEATS: Final = 5
LIMIT_S: Final = 3600.0
_SANITIZER: Final = "compute-sanitizer"
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


# In: name of a scenario, its request, variables, words before the interpreter. Out: step results by name.
RunScenario = Callable[[str, Mapping[str, Any], Mapping[str, str], Sequence[str]], dict[str, Any]]


class ScenarioError(Exception):
    """The process of a step ended without a result; the message ends with the last lines it printed."""


def run_scenario(
    name: str, request: Mapping[str, Any], variables: Mapping[str, str], before: Sequence[str] = ()
) -> dict[str, Any]:
    """In a process of its own, so that its GPU memory is free afterwards."""
    assigned = [f"{key}={value}" for key, value in {**_ENGINE_VARIABLES, **variables}.items()]
    command = ["env", *assigned, *before, sys.executable, "-P", "-m", "semblend.doctor.gpu.scenario", name]
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


def prove(
    request: ProofRequest, folder: Path, progress: Callable[[str], None], run: RunScenario = run_scenario
) -> GpuEvidence:
    """Runs what is missing in ``folder``. ``progress`` gets one line per step."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = _KeptSteps(folder, _fingerprint(request))
    steps: list[Step] = []
    for group in _groups(request, steps):
        found = kept.read(group.steps)
        if found is None:
            progress(f"{'+'.join(group.steps)}: running")
            found = _run(group, run)
            kept.write(found)
        for step in found:
            progress(f"{step.name}: {step.status}, {step.seconds:.0f} s {step.detail}".rstrip())
        steps += found
        if group.steps == ("machine",) and found[0].status is not StepStatus.PASSED:
            raise ConfigurationError(f"the engine cannot be imported: {found[0].detail}")
    return _evidence(request, tuple(steps))


@dataclass(frozen=True, slots=True)
class _Group:
    """Steps that one process makes. With ``skipped`` it is not started."""

    steps: tuple[str, ...]
    scenario: str
    request: Mapping[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    skipped: str = ""


def _groups(request: ProofRequest, done: Sequence[Step]) -> Iterator[_Group]:
    """In order; later groups depend on what the first found."""
    yield _Group(("machine",), "machine", {})
    machine = next(step.figures for step in done if step.name == "machine")
    dtype = request.dtype or ("float32" if machine["device_type"] == "cpu" else "bfloat16")
    tiny = {"dtype": dtype, "options": dict(request.options)}
    yield _Group(("blend", "gaps", "faults", "neighbours"), "correctness", tiny)
    only_blend = {**tiny, "only_blend": True}
    skipped = str(machine["sync_check"])
    yield _Group(("sync_check",), "correctness", only_blend, {"VLLM_GPU_SYNC_CHECK": "error"}, skipped=skipped)
    tool = shutil.which(_SANITIZER)
    before = (tool, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode", "99") if tool else ()
    missing = "" if tool else f"{_SANITIZER} is not installed"
    yield _Group(("sanitizer",), "correctness", only_blend, before=before, skipped=missing)
    flags = {"model": request.command.model, "flags": list(request.command.flags)}
    yield _Group(("ttft",), "ttft", {**flags, "sizes": list(request.sizes), "repeats": request.repeats})


def _run(group: _Group, run: RunScenario) -> tuple[Step, ...]:
    if group.skipped:
        return tuple(Step(name, StepStatus.SKIPPED, 0.0, group.skipped) for name in group.steps)
    began = time.monotonic()
    try:
        results = run(group.scenario, group.request, group.variables, group.before)
    except ScenarioError as error:
        seconds = time.monotonic() - began
        return tuple(Step(name, StepStatus.FAILED, seconds, str(error)) for name in group.steps)
    seconds = (time.monotonic() - began) / len(group.steps)
    return tuple(_step(name, results.get(name) or results.get("blend"), seconds) for name in group.steps)


def _step(name: str, result: Any, seconds: float) -> Step:
    if not isinstance(result, dict):
        return Step(name, StepStatus.FAILED, seconds, "the step gave no result")
    status = StepStatus.PASSED if result["passed"] else StepStatus.FAILED
    return Step(name, status, seconds, str(result["detail"]), dict(result["figures"]))


@dataclass(frozen=True, slots=True)
class _KeptSteps:
    folder: Path
    fingerprint: str

    def read(self, names: Sequence[str]) -> tuple[Step, ...] | None:
        """All of them, if each was finished under the same fingerprint and did not fail."""
        found = []
        for name in names:
            try:
                record = json.loads(self._path(name).read_text(encoding="utf-8"))
                step = decode_step(record["step"])
            except (OSError, ValueError, KeyError, TypeError, EvidenceError):
                return None
            if record.get("fingerprint") != self.fingerprint or step.status is StepStatus.FAILED:
                return None
            found.append(step)
        return tuple(found)

    def write(self, steps: Sequence[Step]) -> None:
        for step in steps:
            text = json.dumps({"fingerprint": self.fingerprint, "step": as_plain(step)}, indent=2)
            self._path(step.name).write_text(text + "\n", encoding="utf-8")

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def _fingerprint(request: ProofRequest) -> str:
    config = Path(request.command.model) / "config.json"
    content = config.read_bytes() if config.is_file() else b""
    named = json.dumps({**asdict(request), "semblend": __version__}, sort_keys=True, default=str)
    return hashlib.sha256(named.encode() + content).hexdigest()


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
