"""Repair in the real SGLang: its scheduler, allocator and radix tree with a tiny random model, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engines.sglang.engine_python import result_of

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("repair_schedules.py")


@pytest.mark.parametrize("policy", ["idle", "likely"])
def test_random_schedules_leave_nothing_inexact_in_the_tree(policy: str) -> None:
    result: dict[str, Any] = result_of(SCRIPT, "8", policy)
    assert not result["inexact"]
    happened = ("blended", "slices", "repaired", "aborted", "flushed", "faults", "pages")
    assert all(result[name] for name in happened), f"or nothing is shown: {result}"
    assert bool(result["busy_slices"]) is (policy == "likely"), "only this policy computes beside running requests"
    turn = result["turn"]
    assert turn["blended_turns"] == 1, "the turn of the break was blended, the next one was not"
    assert turn["cached"] == turn["expected"], "and is an exact prefix hit"


def test_inexact_kv_in_the_tree_is_noticed() -> None:
    assert result_of(SCRIPT, "8", "idle", "--plant")["inexact"]
