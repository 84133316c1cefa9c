"""Our picture of the engine against the engine; and installed but not chosen, the plug-in changes nothing."""

from __future__ import annotations

import pytest
from tests.engines.sglang.engine_python import result_of
from tests.engines.sglang.texts import ROOT

pytestmark = pytest.mark.engine


def test_every_stubbed_name_still_fits_the_engine() -> None:
    result = result_of(ROOT / "tests" / "engines" / "vllm" / "compare_stubs.py", str(ROOT / "typings" / "sglang"))
    assert result["moved"] == []
    assert result["compared"] > 150


def test_the_default_path_is_the_engines_own() -> None:
    result = result_of(ROOT / "tests" / "engines" / "sglang" / "list_touched.py")
    assert "semblend" in result["backends"]
    assert result["forward_is_stock"]
    assert result["cache_is_stock"]
    assert [target.rpartition(".")[2] for target in result["patched"]] == ["_run_sdpa_forward_extend"]
