"""The adapter with stock SGLang: no plug-in of the tests is installed, imported or named, and requests are blended.

Stock SGLang starts on a CPU without its own compiled kernels, which no registry has, if vLLM's CPU build is beside it:
it takes the rotary kernel from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from scripts.engines import sglang, vllm
from scripts.engines.generate import generate
from scripts.engines.server import EngineServer, launch
from scripts.engines.specs import EngineOptions, sglang_missing, sglang_spec, vllm_missing
from scripts.private_venv import ROOT, folder_of, python_of
from tests.engines.sglang.running import OPEN, PAGE_TOKENS
from tests.engines.sglang.texts import Texts

pytestmark = pytest.mark.engine
PLUGIN = "semblend_sglang_testing"


def stock_packages(folder: Path) -> Path:
    """What the engine's environment holds without the tests' plug-in, and vLLM's package."""
    (own,) = folder_of(sglang.RECIPE).glob("lib/python*/site-packages")
    (other,) = folder_of(vllm.RECIPE).glob("lib/python*/site-packages")
    for entry in own.iterdir():
        if PLUGIN not in entry.name and not entry.name.startswith("_editable"):
            (folder / entry.name).symlink_to(entry)
    (folder / "vllm").symlink_to(other / "vllm")
    return folder


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineServer]:
    if missing := sglang_missing() or vllm_missing():
        pytest.skip(missing)
    packages = stock_packages(tmp_path_factory.mktemp("stock"))
    options = EngineOptions(
        extra=("--page-size", str(PAGE_TOKENS), "--max-total-tokens", "4096", "--mem-fraction-static", "0.9"),
        # No site: neither the path files of the environment nor the plug-in's entry points are seen.
        environment={"PYTHONPATH": f"{ROOT / 'src'}:{packages}"},
        startup_timeout_s=900.0,
    )
    spec = sglang_spec(options, semblend=OPEN)
    command = (str(python_of(sglang.RECIPE)), "-S", *spec.command[1:])
    assert PLUGIN not in " ".join((*command, *spec.environment.values()))
    assert str(sglang.PLUGINS) not in json.dumps(spec.environment)
    server = launch(replace(spec, command=command))
    yield server
    server.stop()


def test_stock_sglang_serves_blended_requests_without_any_plugin_of_the_tests(
    stock: EngineServer, texts: Texts
) -> None:
    passage = texts.passage(1000, 320)
    generate(stock.base_url, texts.question(passage, 1), max_new_tokens=2)
    blended = generate(stock.base_url, texts.question(passage, 2), max_new_tokens=2)
    assert blended.semblend is not None
    assert blended.semblend["outcome"] == "backend_materialized_reuse"
    assert blended.reused_tokens > 200
    log = stock.log_path.read_text(encoding="utf-8", errors="replace")
    assert "SemBlend is ready: self-test passed" in log
    assert PLUGIN not in log
    assert "platform plugin activated" not in log
