"""Verdicts on the engine's real configuration objects: each obstacle is recognised where the engine keeps it."""

from __future__ import annotations

from typing import Any

import pytest
from scripts.models.known import SMOLLM2
from tests.engines.vllm.engine_python import result_of

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def judged() -> Any:
    return result_of("judge_configurations.py", str(SMOLLM2.folder))


@pytest.mark.parametrize(
    ("case", "differing"),
    [
        ("plain", {}),
        ("no prefix caching", {}),
        ("qwen3", {}),
        ("three ranks", {"kv_heads": 1}),
        ("partial rotary", {}),
        ("legacy scaling", {}),
        ("rope linear", {}),
        ("rope dynamic", {}),
        ("rope yarn", {}),
        ("rope llama3", {}),
        ("rope longrope", {}),
        ("sliding window", {}),
        ("windowed full spec", {}),
        ("transformers backend", {}),
        ("small blocks", {"block_tokens": 16}),
        ("stock worker", {"sparse_forward": False}),
        ("lora", {"sparse_forward": False}),
    ],
)
def test_usable(judged: Any, case: str, differing: dict[str, Any]) -> None:
    verdict = dict(judged["verdicts"][case])
    assert bool(verdict.pop("sparse_reason")) is not differing.get("sparse_forward", True)
    assert (
        verdict
        == {
            "usable": True,
            "reason": "",
            "head_dim": 64,
            "kv_heads": 3,
            "layers": 30,
            "block_tokens": 128,
            "sparse_forward": True,
            "version_note": "",
            "engine_recovers": True,
            "experimental": "",
        }
        | differing
    )


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("mrope", "mrope"),
        ("windowed spec", "free their older tokens"),
        ("pipeline", "Pipeline parallelism of 2"),
        ("speculation", "Speculative decoding"),
        ("pooling", "only text generation"),
        ("quantised cache", "quantised KV cache"),
        ("producer only", "kv_role"),
        ("two groups", "2 KV cache groups"),
    ],
)
def test_unusable(judged: Any, case: str, reason: str) -> None:
    verdict = judged["verdicts"][case]
    assert "refused_by_engine" not in verdict, verdict
    assert not verdict["usable"]
    assert not verdict["sparse_forward"]
    assert reason in verdict["reason"]


def test_a_real_deployment_lacks_only_the_tenant(judged: Any) -> None:
    unknown = [name for name, value in judged["namespace"].items() if "UNKNOWN" in str(value)]
    assert unknown == ["tenant"]
    assert judged["namespace"]["rope"] == '{"rope_theta":100000.0,"rope_type":"default"}'
    assert judged["namespace"]["block_size"] == 128
