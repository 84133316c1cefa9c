"""The proof's steps, resumption and evidence, with scripted scenarios instead of an engine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
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

KEY = b"sixteen bytes or more"
GPU = {"device_type": "cuda", "device": "NVIDIA L40S", "sync_check": ""}
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
        self.asked: list[tuple[str, dict[str, Any], dict[str, str], tuple[str, ...]]] = []

    def __call__(
        self, name: str, request: Mapping[str, Any], variables: Mapping[str, str], before: Sequence[str]
    ) -> dict[str, Any]:
        self.asked.append((name, dict(request), dict(variables), tuple(before)))
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found: dict[str, str] = {}
    monkeypatch.setattr("semblend.doctor.gpu.proof.shutil.which", found.get)
    return found


def proven(folder: Path, run: Scripted, request: ProofRequest = REQUEST) -> GpuEvidence:
    return prove(request, folder, lambda line: None, run)


# -- the steps -------------------------------------------------------------------------------------------------------


def test_a_whole_run_is_evidence(tmp_path: Path, tools: dict[str, str]) -> None:
    tools["compute-sanitizer"] = "/usr/bin/compute-sanitizer"
    run = Scripted()
    evidence = proven(tmp_path, run)
    assert evidence.obstacles == ()
    assert [step.name for step in evidence.steps] == [
        *("machine", "blend", "gaps", "faults", "neighbours", "sync_check", "sanitizer", "ttft")
    ]
    assert (evidence.device, evidence.backend, evidence.model) == ("NVIDIA L40S", "FLASHINFER", "m")
    sync, sanitizer = run.asked[2], run.asked[3]
    assert sync[2] == {"VLLM_GPU_SYNC_CHECK": "error"}
    assert sanitizer[3][:3] == ("/usr/bin/compute-sanitizer", "--tool", "memcheck")
    assert run.asked[1][1]["dtype"] == "bfloat16"
    assert run.asked[4][1]["flags"] == ["--enforce-eager"]


def test_what_the_machine_lacks_is_skipped_with_a_reason(tmp_path: Path) -> None:
    run = Scripted({**GPU, "device_type": "cpu", "sync_check": "not on this platform"})
    evidence = proven(tmp_path, run)
    assert [name for name, *_ in run.asked] == ["machine", "correctness", "ttft"]
    skipped = {step.name: step.detail for step in evidence.steps if step.status is StepStatus.SKIPPED}
    assert skipped == {"sync_check": "not on this platform", "sanitizer": "compute-sanitizer is not installed"}
    assert evidence.obstacles == ("it was made on a CPU",)
    assert run.asked[1][1]["dtype"] == "float32"


def test_a_process_that_ends_without_a_result_fails_its_steps(tmp_path: Path) -> None:
    evidence = proven(tmp_path, Scripted(correctness=ScenarioError("exit code 1: boom")))
    failed = [step.name for step in evidence.steps if step.status is StepStatus.FAILED]
    assert failed == ["blend", "gaps", "faults", "neighbours", "sync_check"]
    assert any("boom" in obstacle for obstacle in evidence.obstacles)


def test_without_an_engine_there_is_no_evidence(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no vllm"):
        proven(tmp_path, Scripted(machine=ScenarioError("no vllm")))


def test_a_run_continues_after_finished_steps_and_repeats_failed_ones(tmp_path: Path) -> None:
    first = Scripted(ttft={"ttft": result(passed=False)})
    assert proven(tmp_path, first).step("ttft") is not None
    again = Scripted()
    evidence = proven(tmp_path, again)
    assert [name for name, *_ in again.asked] == ["ttft"]
    (measured,) = [step for step in evidence.steps if step.name == "ttft"]
    assert (measured.status, measured.figures) == (StepStatus.PASSED, {"backend": "FLASHINFER", "rows": []})


@pytest.mark.parametrize("change", [{"engine_version": "0.33.0"}, {"repeats": 9}, {"sizes": (64,)}])
def test_a_changed_request_repeats_every_step(tmp_path: Path, change: dict[str, Any]) -> None:
    proven(tmp_path, Scripted())
    again = Scripted()
    proven(tmp_path, again, replace(REQUEST, **change))
    assert len(again.asked) == 4


def test_a_damaged_file_of_a_step_is_repeated(tmp_path: Path) -> None:
    proven(tmp_path, Scripted())
    (tmp_path / "gaps.json").write_text("{")
    again = Scripted()
    proven(tmp_path, again)
    assert [name for name, *_ in again.asked] == ["correctness"]


# -- the file --------------------------------------------------------------------------------------------------------


@pytest.fixture
def evidence(tmp_path: Path) -> GpuEvidence:
    return proven(tmp_path, Scripted())


def test_evidence_survives_its_file_signed_or_not(evidence: GpuEvidence) -> None:
    assert decode_evidence(encode_evidence(evidence)) == evidence
    assert decode_evidence(encode_evidence(evidence, KEY), KEY) == evidence
    assert decode_evidence(encode_evidence(evidence, KEY)) == evidence, "readable without the key"
    assert KEY.decode() not in encode_evidence(evidence, KEY)


def test_a_changed_figure_is_noticed(evidence: GpuEvidence) -> None:
    text = encode_evidence(evidence, KEY).replace("NVIDIA L40S", "NVIDIA H100")
    with pytest.raises(EvidenceError, match="changed"):
        decode_evidence(text)


@pytest.mark.parametrize("signed_with", [None, b"another key of 16 bytes"])
def test_a_key_accepts_only_its_own_signature(evidence: GpuEvidence, signed_with: bytes | None) -> None:
    with pytest.raises(EvidenceError, match="signed"):
        decode_evidence(encode_evidence(evidence, signed_with), KEY)


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
    record.pop("signature")
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    with pytest.raises(EvidenceError, match=message):
        decode_evidence(json.dumps({**record, "digest": digest, "signature": None}))


@pytest.mark.parametrize("name", REQUIRED_STEPS)
def test_every_required_step_is_required(evidence: GpuEvidence, name: str) -> None:
    without = structs.replace(evidence, steps=tuple(step for step in evidence.steps if step.name != name))
    assert without.obstacles == (f"step {name} is missing",)
    skipped = structs.replace(without, steps=(*without.steps, Step(name, StepStatus.SKIPPED, 0.0, "no time")))
    assert skipped.obstacles == (f"step {name} was skipped: no time",)


def test_the_command_reads_and_checks_a_file(
    evidence: GpuEvidence, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, key = tmp_path / "evidence.json", tmp_path / "key"
    file.write_text(encode_evidence(evidence, KEY))
    key.write_bytes(KEY + b"\n")
    assert main(["doctor", "--read-evidence", str(file), "--key-file", str(key)]) == 0
    printed = capsys.readouterr().out
    assert "evidence for this GPU, backend and model" in printed
    assert "NVIDIA L40S (cuda), FLASHINFER" in printed
    key.write_bytes(b"short")
    assert main(["doctor", "--read-evidence", str(file), "--key-file", str(key)]) == 2
    file.write_text(encode_evidence(structs.replace(evidence, device_type="cpu")))
    assert main(["doctor", "--read-evidence", str(file)]) == 0
    assert "not evidence for a GPU: it was made on a CPU" in capsys.readouterr().out
    file.write_text("[]")
    assert main(["doctor", "--read-evidence", str(file)]) == 2
    assert main(["doctor", "--gpu"]) == 2
