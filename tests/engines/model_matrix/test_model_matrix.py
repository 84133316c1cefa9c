"""A few architectures of each kind in the real engine: served or refused as the table says, and blended rightly."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from scripts.engines import vllm
from scripts.engines.specs import vllm_missing
from scripts.model_matrix import faults_of
from scripts.private_venv import python_of
from tests.engines.model_matrix.variants import VARIANTS

pytestmark = [pytest.mark.engine, pytest.mark.slow]
# Scaled RoPE, two bases and windows, MLA, recurrent layers; the others of CI's differ from these in one setting.
BEFORE_A_LANDING = {"llama-3", "gemma-3", "deepseek-v3", "falcon-h1"}
IN_CI = [
    pytest.param(variant, id=variant.name, marks=() if variant.name in BEFORE_A_LANDING else pytest.mark.nightly)
    for variant in VARIANTS
    if variant.in_ci
]
RUN = Path(__file__).parent / "run.py"


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Of the variants whose tests were selected; the engine starts once for each."""
    if missing := vllm_missing():
        pytest.skip(missing)
    out = tmp_path_factory.mktemp("matrix") / "outcomes.jsonl"
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    names = {call.params["variant"].name for call in calls if call is not None and "variant" in call.params}
    command = [str(python_of(vllm.RECIPE)), "-P", str(RUN), "--out", str(out), *sorted(names)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in rows}


@pytest.mark.parametrize("variant", IN_CI)
def test_the_model_is_served_or_refused_as_expected(variant: Any, outcomes: dict[str, dict[str, Any]]) -> None:
    assert not faults_of(variant, outcomes[variant.name])


@pytest.mark.parametrize("variant", IN_CI)
def test_layers_see_as_far_as_the_config_says(variant: Any, outcomes: dict[str, dict[str, Any]]) -> None:
    found = outcomes[variant.name]["reaches"]
    window = variant.settings.get("sliding_window")
    if window is None:
        assert set(found) <= {None}
        return
    more = variant.model_type == "cohere2"  # whose queries see their own token and a whole window before it
    kinds = variant.settings.get("layer_types", ["sliding_attention"] * len(found))
    assert found == [window - 1 + more if kind == "sliding_attention" else None for kind in kinds]
