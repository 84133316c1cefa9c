"""Repair in the real SGLang: its scheduler, allocator and radix tree with a tiny random model; and on a server."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import pytest
from scripts.engines.generate import generate
from scripts.engines.server import EngineServer
from tests.engines.sglang.engine_python import result_of
from tests.engines.sglang.running import PAGE_TOKENS, start
from tests.engines.sglang.texts import Texts
from tests.waiting import wait_until

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


def published_tokens(server: EngineServer) -> float:
    with urllib.request.urlopen(f"{server.base_url}/metrics", timeout=300) as answer:
        rows = answer.read().decode().splitlines()
    return sum(float(row.split()[-1]) for row in rows if row.startswith("sglang:semblend_published_tokens_total"))


def test_on_a_server_the_turn_after_a_repaired_break_is_an_exact_hit(tmp_path: Path, texts: Texts) -> None:
    passage = texts.passage(1000, 480)
    broken = texts.question(passage, 2)
    flags = ("--max-total-tokens", "4096", "--enable-metrics")
    with start(tmp_path / "events.jsonl", *flags, repair="idle") as server:
        generate(server.base_url, texts.question(passage, 1), max_new_tokens=1)
        blended = generate(server.base_url, broken, max_new_tokens=24)
        assert blended.semblend is not None
        assert blended.semblend["outcome"] == "backend_materialized_reuse"
        everything = [*broken, *blended.tokens]
        exact = blended.semblend["exact_tokens"] // PAGE_TOKENS * PAGE_TOKENS
        whole = (len(everything) - 1) // PAGE_TOKENS * PAGE_TOKENS  # the last token's KV was never computed
        wait_until(lambda: published_tokens(server) >= whole - exact, patience_s=300)
        after = generate(server.base_url, [*everything, *texts.passage(9000, 40)], max_new_tokens=1)
        assert after.cached_tokens == whole
        assert after.reused_tokens == 0
