"""Our picture of the engine against the engine; and installed but not chosen, the plug-in changes nothing."""

from __future__ import annotations

import pytest
from scripts.private_venv import ROOT
from tests.engines.sglang.engine_python import result_of

pytestmark = pytest.mark.engine


def test_every_stubbed_name_still_fits_the_engine() -> None:
    result = result_of(ROOT / "tests" / "engines" / "vllm" / "compare_stubs.py", str(ROOT / "typings" / "sglang"))
    assert result["moved"] == []
    assert result["compared"] > 150


def test_the_default_path_is_the_engines_own() -> None:
    script = ROOT / "tests" / "engines" / "sglang" / "list_touched.py"
    stock, ours = result_of(script, "rectangular_attention"), result_of(script, "rectangular_attention", "semblend")
    assert ours["backends"] == [*stock["backends"], "semblend"]
    assert ours["forward_is_stock"]
    assert ours["cache_is_stock"]
    assert ours["patched"] == stock["patched"]
