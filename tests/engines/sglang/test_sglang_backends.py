"""What ``support.WRITES_BEFORE_ATTENDING`` says of the attention backends, checked in the engine's own source.

The backends for GPUs do not run here. Their order of writing and attending is what the extra pass depends on.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from scripts.engines import sglang
from scripts.engines.specs import sglang_missing
from scripts.private_venv import folder_of

from semblend.integration.sglang.support import WRITES_BEFORE_ATTENDING

pytestmark = pytest.mark.engine
WRITES = {"set_kv_buffer", "_set_kv_buffer"}
# Backend, its file and class, and the calls by which its prefill attends.
BACKENDS = (
    ("torch_native", "torch_native_backend", "TorchNativeAttnBackend", {"_run_sdpa_forward_extend"}),
    ("triton", "triton_backend", "TritonAttnBackend", {"extend_attention_fwd", "_forward_extend_unified"}),
    ("fa3", "flashattention_backend", "FlashAttentionBackend", {"flash_attn_with_kvcache", "flash_attn_varlen_func"}),
    ("flashinfer", "flashinfer_backend", "FlashInferAttnBackend", {"forward_return_lse"}),
)


@pytest.fixture(scope="module")
def engine() -> Path:
    if missing := sglang_missing():
        pytest.skip(missing)
    (found,) = folder_of(sglang.RECIPE).glob("lib/python*/site-packages/sglang/srt")
    return found


def calls(source: Path, class_name: str, method: str) -> list[tuple[int, str]]:
    classes = [node for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)]
    (own,) = [node for node in classes if node.name == class_name]
    (body,) = [node for node in own.body if isinstance(node, ast.FunctionDef) and node.name == method]
    found = []
    for node in ast.walk(body):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            found.append((node.lineno, name))
    return found


@pytest.mark.parametrize(("backend", "file", "class_name", "attends"), BACKENDS, ids=[row[0] for row in BACKENDS])
def test_a_backend_writes_before_or_after_it_attends_as_the_table_says(
    engine: Path, backend: str, file: str, class_name: str, attends: set[str]
) -> None:
    found = calls(engine / "layers" / "attention" / f"{file}.py", class_name, "forward_extend")
    written = [line for line, name in found if name in WRITES]
    attended = [line for line, name in found if name in attends]
    assert written
    assert attended
    assert (max(written) < min(attended)) is WRITES_BEFORE_ATTENDING[backend]


def test_every_backend_of_the_table_is_checked() -> None:
    assert {backend for backend, *_ in BACKENDS} == set(WRITES_BEFORE_ATTENDING)


def test_only_speculation_and_diffusion_plan_a_pass_before_it_begins(engine: Path) -> None:
    """Both are declined. Otherwise the extra pass would replace a plan that the engine's own pass still needs."""
    marks = [
        path.relative_to(engine).as_posix()
        for path in engine.rglob("*.py")
        if ".mark_forward_metadata_ready(" in path.read_text(encoding="utf-8")
    ]
    assert marks
    declined = ("speculative/", "dllm/", "model_executor/forward_batch_info.py")
    assert [name for name in marks if not name.startswith(declined)] == []
    assert "needs_forward_metadata_init()" in (engine / "model_executor" / "runner" / "eager_runner.py").read_text()
