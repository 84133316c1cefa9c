"""What a server on a GPU logs at its start: experimental, or the date of the evidence that counts for it."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vllm
from semblend import __version__
from semblend.contract.gpu_evidence import REQUIRED_STEPS, GpuEvidence, Step, StepStatus, encode_evidence
from semblend.integration.vllm import start
from semblend.integration.vllm.commands import Readiness
from semblend.integration.vllm.options import parse_options
from semblend.integration.vllm.support import Support

pytestmark = pytest.mark.engine
SUPPORT = Support(True, "", sparse_forward=True, experimental="Not verified on a real cuda device.")


def logged(device: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> str:
    config: Any = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=SimpleNamespace(architectures=["LlamaForCausalLM"]), max_model_len=8_192)
    )
    readiness = Readiness("", True, "layout", 1, device, "FLASH_ATTN")
    caplog.clear()
    with caplog.at_level(logging.INFO):
        start.announce(SUPPORT, readiness, config, parse_options(options), logging.getLogger("started"))
    return caplog.records[-1].getMessage()


def test_evidence_of_this_gpu_and_version_replaces_the_word_experimental(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evidence = GpuEvidence(
        created="2026-11-17T06:00:00+00:00",
        device="NVIDIA H100",
        device_type="cuda",
        backend="FLASH_ATTN",
        model="llama",
        architecture="LlamaForCausalLM",
        engine="vllm",
        engine_version=vllm.__version__,
        semblend_version=__version__,
        configuration={},
        machine={},
        steps=tuple(Step(name, StepStatus.PASSED, 1.0) for name in REQUIRED_STEPS),
    )
    file = tmp_path / "evidence.json"
    file.write_text(encode_evidence(evidence))
    options = {"experimental_gpu": True, "gpu_evidence": str(file)}
    assert logged("NVIDIA H100", options, caplog).startswith("SemBlend is verified by evidence of 2026-11-17: ")
    assert "another GPU, NVIDIA H100 instead of NVIDIA A100" in logged("NVIDIA A100", options, caplog)
    assert logged("NVIDIA H100", {"experimental_gpu": True}, caplog).startswith("SemBlend is experimental here: ")
