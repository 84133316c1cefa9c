"""Our picture of the engine's surface against the engine itself: a failure lists what moved."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engines.vllm.engine_python import ROOT, result_of

pytestmark = pytest.mark.engine


def test_every_stubbed_name_still_fits_the_engine() -> None:
    result = result_of("compare_stubs.py", str(ROOT / "typings" / "vllm"))
    assert result["moved"] == []
    assert result["compared"] > 300


def test_what_moved_is_named(tmp_path: Path) -> None:
    stub = tmp_path / "vllm"
    stub.mkdir()
    (stub / "logger.pyi").write_text("def init_logger(title: str) -> None: ...\ndef gone() -> None: ...\n")
    (stub / "forward_context.pyi").write_text(
        "class ForwardContext:\n    no_such_field: int\n    no_compile_layers: int\n    def no_such(self): ...\n"
    )
    (stub / "no_such_module.pyi").write_text("")
    assert [line.partition(":")[0] for line in result_of("compare_stubs.py", str(stub))["moved"]] == [
        "vllm.forward_context.ForwardContext.no_such_field",
        "vllm.forward_context.ForwardContext.no_such",
        "vllm.logger.init_logger",
        "vllm.logger.gone",
        "vllm.no_such_module",
    ]
