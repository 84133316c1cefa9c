"""Tests that need the engine's own classes. In an interpreter without vLLM each file becomes one skipped test."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HAS_ENGINE = importlib.util.find_spec("vllm") is not None

if HAS_ENGINE:
    for name, value in {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    sys.path.insert(0, str(HERE.parents[2]))

    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "engine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
    )
    settings.register_profile("search", parent=settings.get_profile("engine"), derandomize=False, max_examples=1000)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "engine"))


class Elsewhere(pytest.Item):
    """Says where a file's tests run, in the one tier that asks for engines."""

    def runtest(self) -> None:
        pytest.skip("needs vLLM's interpreter: run .engines/vllm/bin/python -m pytest tests/engines/vllm_inside")

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.name


class ElsewhereFile(pytest.File):
    def collect(self) -> list[pytest.Item]:
        item = Elsewhere.from_parent(self, name="inside_the_engine")
        item.add_marker(pytest.mark.engine)
        return [item]


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return None if HAS_ENGINE else ElsewhereFile.from_parent(parent, path=module_path)
