"""The proof's steps and evidence, with scripted scenarios instead of an engine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from sembase.errors import ConfigurationError
from semblend.cli.main import main
from semblend.contract.gpu_evidence import (
    REQUIRED_STEPS,
    EvidenceError,
    GpuEvidence,
    Step,
    StepStatus,
    decode_evidence,
    encode_evidence,
)
from semblend.doctor.gpu.proof import ProofRequest, ScenarioError, prove
from semblend.doctor.serve_command import VLLM, ServeCommand

GPU = {"device_type": "cuda", "device": "NVIDIA L40S"}
REQUEST = ProofRequest(
    command=ServeCommand(VLLM, "/models/m", ("--enforce-eager",)), engine_version="0.32.0", architecture="Llama"
)


def result(passed: bool = True, **figures: Any) -> dict[str, Any]:
    return {"passed": passed, "detail": "" if passed else "wrong", "figures": figures}


class Scripted:
    """Answers of the scenarios, and what was asked."""

    def __init__(self, on: Mapping[str, Any] = GPU, /, **changed: Any) -> None:
        tiny = {name: result(backend="FLASH_ATTN") for name in ("blend", "gaps", "faults", "neighbours")}
        self.answers: dict[str, Any] = {
            "machine": {"machine": result(**on)},
            "correctness": tiny,
            "ttft": {"ttft": result(backend="FLASHINFER", rows=[])},
            **changed,
        }
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, name: str, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append((name, dict(request)))
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


def proven(run: Scripted) -> GpuEvidence:
    return prove(REQUEST, lambda line: None, run)


# -- the steps -------------------------------------------------------------------------------------------------------


def test_a_whole_run_is_evidence() -> None:
    run = Scripted()
    evidence = proven(run)
    assert evidence.obstacles == ()
    assert tuple(step.name for step in evidence.steps) == REQUIRED_STEPS
    assert (evidence.device, evidence.backend, evidence.model) == ("NVIDIA L40S", "FLASHINFER", "m")
    assert [name for name, _ in run.asked] == ["machine", "correctness", "ttft"]
    assert run.asked[1][1]["dtype"] == "bfloat16"
    assert run.asked[2][1]["flags"] == ["--enforce-eager"]


def test_a_run_on_a_cpu_computes_in_float32_and_is_no_evidence() -> None:
    run = Scripted({**GPU, "device_type": "cpu"})
    assert proven(run).obstacles == ("it was made on a CPU",)
    assert run.asked[1][1]["dtype"] == "float32"


def test_a_process_that_ends_without_a_result_fails_its_steps() -> None:
    evidence = proven(Scripted(correctness=ScenarioError("exit code 1: boom")))
    failed = [step.name for step in evidence.steps if step.status is StepStatus.FAILED]
    assert failed == ["blend", "gaps", "faults", "neighbours"]
    assert any("boom" in obstacle for obstacle in evidence.obstacles)


def test_a_step_that_is_not_in_the_result_fails() -> None:
    step = proven(Scripted(ttft={})).step("ttft")
    assert step is not None
    assert (step.status, step.detail) == (StepStatus.FAILED, "the step gave no result")


def test_without_an_engine_there_is_no_evidence() -> None:
    with pytest.raises(ConfigurationError, match="no vllm"):
        proven(Scripted(machine=ScenarioError("no vllm")))


# -- the file --------------------------------------------------------------------------------------------------------


@pytest.fixture
def evidence() -> GpuEvidence:
    return proven(Scripted())


def test_evidence_survives_its_file(evidence: GpuEvidence) -> None:
    assert decode_evidence(encode_evidence(evidence)) == evidence


def test_a_changed_figure_is_noticed(evidence: GpuEvidence) -> None:
    text = encode_evidence(evidence).replace("NVIDIA L40S", "NVIDIA H100")
    with pytest.raises(EvidenceError, match="changed"):
        decode_evidence(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "semblend.gpu-evidence.v2"}, "not a record"),
        ({"device": 1}, "device"),
        ({"machine": []}, "machine"),
        ({"steps": []}, "steps"),
        ({"steps": [{"name": "blend"}]}, "required field `status`"),
        ({"more": 1}, "unknown field `more`"),
        (
            {"steps": [{"name": "a", "status": "fine", "seconds": 1, "detail": "", "figures": {}}]},
            "Invalid enum value",
        ),
    ],
)
def test_a_file_of_another_shape_is_refused(evidence: GpuEvidence, change: dict[str, Any], message: str) -> None:
    record = {**json.loads(encode_evidence(evidence)), **change}
    record.pop("digest")
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    with pytest.raises(EvidenceError, match=message):
        decode_evidence(json.dumps({**record, "digest": digest}))


@pytest.mark.parametrize("name", REQUIRED_STEPS)
def test_every_required_step_is_required(evidence: GpuEvidence, name: str) -> None:
    without = structs.replace(evidence, steps=tuple(step for step in evidence.steps if step.name != name))
    assert without.obstacles == (f"step {name} is missing",)
    failed = structs.replace(without, steps=(*without.steps, Step(name, StepStatus.FAILED, 0.0, "wrong")))
    assert failed.obstacles == (f"step {name} failed: wrong",)


def test_the_command_reads_and_checks_a_file(
    evidence: GpuEvidence, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "evidence.json"
    file.write_text(encode_evidence(evidence))
    assert main(["doctor", "--read-evidence", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "evidence for this GPU, backend and model" in printed
    assert "NVIDIA L40S (cuda), FLASHINFER" in printed
    file.write_text(encode_evidence(structs.replace(evidence, device_type="cpu")))
    assert main(["doctor", "--read-evidence", str(file)]) == 0
    assert "not evidence for a GPU: it was made on a CPU" in capsys.readouterr().out
    file.write_text("[]")
    assert main(["doctor", "--read-evidence", str(file)]) == 2
    assert main(["doctor", "--gpu"]) == 2
