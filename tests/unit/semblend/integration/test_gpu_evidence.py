"""Evidence of a GPU proof: what counts for the server that runs here, and the one sentence why a file does not."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from semblend import __version__
from semblend.contract.gpu_evidence import REQUIRED_STEPS, GpuEvidence, Step, StepStatus, encode_evidence
from semblend.integration.gpu_evidence import ACCEPTED, GpuOptions, Kind, find_acceptance, log_acceptance

KIND = Kind(
    device="NVIDIA H100", backend="FLASH_ATTN", architecture="LlamaForCausalLM", engine="vllm", engine_version="0.32.0"
)
EVIDENCE = GpuEvidence(
    created="2026-11-17T06:00:00+00:00",
    device=KIND.device,
    device_type="cuda",
    backend=KIND.backend,
    model="llama",
    architecture=KIND.architecture,
    engine=KIND.engine,
    engine_version=KIND.engine_version,
    semblend_version=__version__,
    configuration={},
    machine={},
    steps=tuple(Step(name, StepStatus.PASSED, 1.0) for name in REQUIRED_STEPS),
)


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    folder = tmp_path / "accepted"
    folder.mkdir()
    return folder


def own_file(tmp_path: Path, evidence: GpuEvidence = EVIDENCE) -> Path:
    file = tmp_path / "own.json"
    file.write_text(encode_evidence(evidence))
    return file


def test_the_package_ships_a_folder_without_evidence_today() -> None:
    assert (ACCEPTED / "README.md").is_file()
    assert list(ACCEPTED.glob("*.json")) == []
    assert find_acceptance(KIND, None).reason == f"No evidence has been accepted for {KIND}."


def test_a_shipped_file_of_the_same_kind_counts(shipped: Path) -> None:
    (shipped / "other.json").write_text(encode_evidence(structs.replace(EVIDENCE, device="NVIDIA A100")))
    assert find_acceptance(KIND, None, shipped).reason
    (shipped / "own.json").write_text(encode_evidence(EVIDENCE))
    assert find_acceptance(KIND, None, shipped).date == "2026-11-17"


def test_a_shipped_file_that_was_changed_does_not_count(shipped: Path) -> None:
    (shipped / "own.json").write_text(
        encode_evidence(structs.replace(EVIDENCE, backend="TRITON")).replace("TRITON", "FLASH")
    )
    assert find_acceptance(replace(KIND, backend="FLASH"), None, shipped).date == ""


def test_a_file_of_the_deployment_counts(tmp_path: Path, shipped: Path) -> None:
    assert find_acceptance(KIND, own_file(tmp_path), shipped).date == "2026-11-17"


def test_a_build_of_the_same_release_counts(tmp_path: Path, shipped: Path) -> None:
    here = replace(KIND, engine_version="0.32.0+cu129")
    assert find_acceptance(here, own_file(tmp_path), shipped).date == "2026-11-17"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device": "NVIDIA A100"}, "another GPU, NVIDIA A100 instead of NVIDIA H100"),
        ({"backend": "TRITON_ATTN"}, "another attention backend, TRITON_ATTN instead of FLASH_ATTN"),
        ({"architecture": "Qwen3ForCausalLM"}, "another architecture, Qwen3ForCausalLM"),
        ({"engine": "sglang"}, "another engine, sglang instead of vllm"),
        ({"engine_version": "0.31.0"}, "another engine version, 0.31.0 instead of 0.32.0"),
        ({"semblend_version": "99.0.0"}, "another SemBlend version, 99.0 instead of"),
        ({"device_type": "cpu"}, "it was made on a CPU"),
        ({"steps": EVIDENCE.steps[1:]}, "step machine is missing"),
    ],
)
def test_evidence_of_another_kind_leaves_it_experimental(
    tmp_path: Path, shipped: Path, changes: dict[str, object], reason: str
) -> None:
    evidence = structs.replace(EVIDENCE, **changes)
    found = find_acceptance(KIND, own_file(tmp_path, evidence), shipped)
    assert found.date == ""
    assert reason in found.reason
    assert found.reason.endswith(".")


def test_a_tampered_file_leaves_it_experimental(tmp_path: Path, shipped: Path) -> None:
    file = own_file(tmp_path, structs.replace(EVIDENCE, device="NVIDIA A100"))
    file.write_text(file.read_text().replace("NVIDIA A100", KIND.device))
    assert "the file was changed after it was written" in find_acceptance(KIND, file, shipped).reason


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"{"])
def test_a_file_that_cannot_be_read_is_a_reason_and_no_fault(
    tmp_path: Path, shipped: Path, content: bytes | None
) -> None:
    file = tmp_path / "unreadable.json"
    if content is not None:
        file.write_bytes(content)
    assert "does not count" in find_acceptance(KIND, file, shipped).reason


def test_the_log_says_verified_or_experimental(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("evidence")
    options = GpuOptions(experimental_gpu=True, gpu_evidence=own_file(tmp_path))
    with caplog.at_level(logging.INFO):
        log_acceptance(log, KIND, options, "Not verified on a real cuda device.")
        log_acceptance(log, replace(KIND, device="NVIDIA A100"), options, "Not verified on a real cuda device.")
    verified, experimental = (record.getMessage() for record in caplog.records)
    assert verified == f"SemBlend is verified by evidence of 2026-11-17: {KIND}"
    assert experimental.startswith("SemBlend is experimental here: Not verified on a real cuda device. The evidence in")
    assert "another GPU" in experimental
