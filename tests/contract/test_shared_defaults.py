"""A default that several parts use is written down once: the adapters and the donor index read the same gates."""

from __future__ import annotations

import re
from pathlib import Path

from semantic_kv.policy import reuse
from semantic_kv.policy.reuse import Reuse
from semblend.contract.shape import MOVED_SHARE
from semblend.donors import index
from semblend.integration import shared_options
from semblend.integration.sglang.options import SglangOptions
from semblend.integration.vllm.options import ConnectorOptions
from semblend.plan.gates import ADAPTER_GATES

SOURCE = Path(__file__).parents[2] / "src"


def test_the_adapters_and_the_donor_index_use_the_same_gates() -> None:
    assert ConnectorOptions().gates is ADAPTER_GATES
    assert SglangOptions().gates is ADAPTER_GATES
    assert vars(index)["ADAPTER_GATES"] is ADAPTER_GATES


def test_the_simulator_assumes_the_adapters_gates() -> None:
    """It cannot import them: semantic_kv does not depend on semblend."""
    for name in ("min_run_tokens", "min_reuse_ratio", "min_inexact_tokens", "boundary_recompute_tokens"):
        assert getattr(Reuse(), name) == getattr(ADAPTER_GATES, name), name
    assert reuse.BUSY_STEPS_PER_SLICE == shared_options.BUSY_STEPS_PER_SLICE


def test_the_default_of_max_context_share_is_written_once() -> None:
    number = re.compile(r"(?:max_context_share|MOVED_SHARE)(?:: \w+)? *= *0\.\d")
    found = [path.name for path in SOURCE.rglob("*.py") for _ in number.findall(path.read_text(encoding="utf-8"))]
    assert found == ["shape.py"]
    assert ADAPTER_GATES.max_context_share == MOVED_SHARE
