"""Some architectures of each kind in the real engine: served or refused as expected; moved KV gives its answers."""

from __future__ import annotations

import pytest
from scripts.private_venv import ROOT
from tests.engines.sglang.engine_python import result_of

pytestmark = [pytest.mark.engine, pytest.mark.slow]
# Scaled RoPE, key bias, two bases and windows, layers without RoPE, MLA; learned positions must be refused.
NAMES = ("llama-3", "qwen2", "gemma-3", "command-a", "deepseek-v3", "gpt-2")


def test_models_are_served_or_refused_as_expected() -> None:
    result = result_of(ROOT / "tests" / "engines" / "sglang" / "run_models.py", *NAMES)
    assert result["faults"] == []
    served = {outcome["name"]: outcome["served"] for outcome in result["outcomes"]}
    assert served == {name: name != "gpt-2" for name in NAMES}
