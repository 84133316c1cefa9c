"""The radix tree of real servers, page by page: nothing approximate in ours, and stock where ours is not chosen.

Four servers, two at a time (each computes on one core), serve the same requests: without the plug-in, with it
installed, with its backend switched off in the settings, and blending. A test-only ledger writes down the cache's calls
and the KV of its tree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts.engines.generate import Reply, flush, generate
from scripts.engines.server import EngineServer
from scripts.engines.specs import sglang_missing
from tests.engines.sglang.running import PAGE_TOKENS, start
from tests.engines.sglang.texts import Texts

pytestmark = [pytest.mark.engine, pytest.mark.slow]

POOL = ("--max-total-tokens", "3584")
PASSAGE_TOKENS = 320
LARGE_TOKENS = 800
ARMS: Mapping[str, Mapping[str, str]] = {
    "without": {"SGLANG_PLUGINS": "cpu_native,rectangular_attention,tree_log"},
    "installed": {},
    "switched_off": {"SEMBLEND_ENABLED": "0"},
    "blending": {},
}
# K and V of cold prefill cut in other pieces differ by rounding; KV that saw another context by far more.
ROUNDING = 2e-3


@dataclass(frozen=True, slots=True)
class Served:
    """``trees``: per flush, the page's digest and its place in ``kv``; ``kv``: K and V of three layers."""

    replies: tuple[Reply, ...]
    calls: tuple[dict[str, Any], ...]
    trees: tuple[dict[str, Any], ...]

    @property
    def answers(self) -> list[tuple[int, ...]]:
        return [reply.tokens for reply in self.replies]


def passages(texts: Texts) -> list[list[int]]:
    return [texts.passage(1000 + 600 * number, PASSAGE_TOKENS) for number in range(3)]


def small_history(server: EngineServer, texts: Texts) -> list[Reply]:
    """Donors and recipients that all fit into the pool; then the tree is emptied."""
    prompts = [texts.question(passage, 40 + number) for number, passage in enumerate(passages(texts))]
    prompts += [texts.question(passage, 50 + number) for number, passage in enumerate(passages(texts))]
    prompts += [prompts[0], [*prompts[1], *texts.encode(" And why?")]]
    replies = [
        generate(server.base_url, prompt, max_new_tokens=8, rid=f"small-{number}")
        for number, prompt in enumerate(prompts)
    ]
    replies.append(generate(server.base_url, prompts[3], max_new_tokens=4, rid="tenant", extra_key="tenant-a"))
    flush(server.base_url)
    return replies


def large_history(server: EngineServer, texts: Texts) -> list[Reply]:
    """More than the pool holds: the engine evicts."""
    prompts = [texts.passage(20000 + LARGE_TOKENS * number, LARGE_TOKENS) for number in range(5)]
    replies = [
        generate(server.base_url, prompt, max_new_tokens=2, rid=f"large-{number}")
        for number, prompt in enumerate([*prompts, prompts[4], prompts[0]])
    ]
    flush(server.base_url)
    return replies


def serve(folder: Path, texts: Texts, arm: str) -> Served:
    """``arm``: one of ``ARMS``."""
    folder.mkdir()
    chosen = {"TREE_LOG_FOLDER": str(folder), **ARMS[arm]}
    events = folder.with_suffix(".jsonl") if arm in {"switched_off", "blending"} else None
    with start(events, *POOL, environment=chosen) as server:
        flush(server.base_url)  # what the engine asked itself while it warmed up
        for left in folder.iterdir():
            left.unlink()
        replies = small_history(server, texts)
        replies += large_history(server, texts) if arm != "blending" else []
    calls = tuple(json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines())
    trees = tuple(dict(np.load(path)) for path in sorted(folder.glob("tree-*.npz")))
    return Served(tuple(replies), calls, trees)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, texts: Texts) -> Mapping[str, Served]:
    missing = sglang_missing()
    if missing:
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("trees")
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(ARMS, pool.map(lambda arm: serve(folder / arm, texts, arm), ARMS), strict=True))


@pytest.mark.parametrize("arm", ["installed", "switched_off"])
def test_not_chosen_or_switched_off_it_is_the_engine_call_for_call(arm: str, served: Mapping[str, Served]) -> None:
    ours, without = served[arm], served["without"]
    assert ours.answers == without.answers
    assert [reply.cached_tokens for reply in ours.replies] == [reply.cached_tokens for reply in without.replies]
    assert len(without.calls) > 100
    assert {"match_prefix", "insert", "checkpoint", "on_release", "reset"} <= {row["call"] for row in without.calls}
    assert any(row["call"].startswith("evict") for row in without.calls), "the history puts the pool under pressure"
    assert ours.calls == without.calls
    assert len(ours.trees) == len(without.trees) == 2
    for tree, stock in zip(ours.trees, without.trees, strict=True):
        assert tree.keys() == stock.keys()
        assert all(np.array_equal(tree[name], stock[name]) for name in stock)


def test_the_tree_behind_blended_requests_holds_cold_kv_alone(served: Mapping[str, Served]) -> None:
    blended = [reply for reply in served["blending"].replies if reply.reused_tokens]
    assert len(blended) >= 3, "requests were blended, or nothing is shown"
    ours, stock = served["blending"].trees[0], served["without"].trees[0]
    for tree in (ours, stock):  # the ledger saw every page there is
        assert int(tree["tokens"]) == len(tree["names"]) * PAGE_TOKENS
    place = {name: number for number, name in enumerate(stock["names"])}
    assert set(ours["names"]) <= set(place), "a page that a run without us does not have"
    assert len(ours["names"]) < len(place), "what was loaded stayed out"
    rows = [place[name] for name in ours["names"]]
    for part in (name for name in stock if name[0] in "kv"):
        np.testing.assert_allclose(ours[part], stock[part][rows], atol=ROUNDING, err_msg=part)
