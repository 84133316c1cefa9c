"""HiCache on a real SGLang server with our page store behind it: exact hits, and donors that only the store has."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from scripts.engines.generate import Reply, flush, generate
from scripts.engines.server import EngineServer
from tests.engines.sglang.listening import listening
from tests.engines.sglang.running import PAGE_TOKENS, announcing, start
from tests.engines.sglang.texts import QUESTION, Texts
from tests.waiting import until

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ALONE = {"reuse": False, "capture": False}
PASSAGE_TOKENS = 192
DEVICE_TOKENS, HOST_TOKENS = 768, 1152  # small, so that little pressure empties both
PRESSURE_TOKENS = 400
STORAGE = {
    "backend_name": "semblend",
    "module_path": "semblend.integration.sglang.hicache_backend",
    "class_name": "SemBlendStorage",
    "interface_v1": 1,
    "budget_bytes": 1 << 30,
    "prefetch_threshold": 64,
}
FLAGS = (
    *(
        "--max-total-tokens",
        str(DEVICE_TOKENS),
        "--enable-hierarchical-cache",
        "--hicache-ratio",
        str(HOST_TOKENS / DEVICE_TOKENS),
    ),
    *("--watchdog-timeout", "3000"),  # a busy machine is not a dead engine
    *("--hicache-io-backend", "direct", "--hicache-mem-layout", "layer_first"),
    *("--hicache-write-policy", "write_through", "--hicache-storage-prefetch-policy", "wait_complete"),
    *("--hicache-storage-backend", "dynamic", "--hicache-storage-backend-extra-config", json.dumps(STORAGE)),
)


@pytest.fixture(scope="module")
def tier_events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hicache") / "events.jsonl"


@pytest.fixture(scope="module")
def announced_at(tier_events: Path) -> tuple[str, dict[str, str]]:
    return announcing(tier_events.parent)


@pytest.fixture(scope="module")
def server(tier_events: Path, announced_at: tuple[str, dict[str, str]]) -> Iterator[EngineServer]:
    with start(tier_events, *FLAGS, environment={"HOST_TIER_ON_CPU": "1", **announced_at[1]}) as running:
        yield running


def ask(server: EngineServer, prompt: Sequence[int], **more: Any) -> Reply:
    return generate(server.base_url, prompt, **{"max_new_tokens": 8, "top_logprobs": 5, **more})


def cold(server: EngineServer, prompt: Sequence[int], **more: Any) -> Reply:
    flush(server.base_url)
    reply = ask(server, prompt, semblend=ALONE, **more)
    assert reply.cached_tokens == 0
    flush(server.base_url)
    return reply


def press(server: EngineServer, texts: Texts) -> None:
    """Other prompts, more tokens than device or host can hold: of what was there before, only the store has all."""
    for number in range(HOST_TOKENS // PRESSURE_TOKENS + 2):
        prompt = texts.passage(20000 + (PRESSURE_TOKENS + 8) * number, PRESSURE_TOKENS)
        ask(server, prompt, max_new_tokens=1, semblend=ALONE)


def clear_store(server: EngineServer) -> None:
    request = urllib.request.Request(f"{server.base_url}/hicache/storage-backend/clear", method="POST")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=300) as answer:
        assert answer.status == 200


def cached_from(reply: Reply, tier: str) -> int:
    return int((reply.meta.get("cached_tokens_details") or {}).get(tier, 0))


def test_the_engine_runs_both_our_backends(server: EngineServer) -> None:
    log = server.log_path.read_text(encoding="utf-8", errors="replace")
    assert "SemBlend is ready: self-test passed, forward hook in place" in log
    assert "SemBlend's page store holds up to 1073741824 bytes" in log


def test_a_donor_that_only_the_store_has_serves_as_one_on_the_device_does(server: EngineServer, texts: Texts) -> None:
    passage = texts.passage(1000, PASSAGE_TOKENS)
    donor, prompt = texts.question(passage, 1), texts.question(passage, 2)
    before = cold(server, prompt)
    ask(server, donor)
    from_device = ask(server, prompt)
    assert from_device.reused_tokens > 0.8 * PASSAGE_TOKENS
    flush(server.base_url)
    ask(server, donor)
    press(server, texts)
    from_store = ask(server, prompt)
    assert from_store.semblend is not None
    assert from_store.semblend["outcome"] == "backend_materialized_reuse"
    assert from_store.reused_tokens == from_device.reused_tokens
    assert from_store.tokens[0] == from_device.tokens[0] == before.tokens[0]
    assert [token for _, token in from_store.first_top] == [token for _, token in from_device.first_top]
    for (stored, _), (resident, _) in zip(from_store.first_top, from_device.first_top, strict=True):
        assert abs(stored - resident) < 1e-3, "the same KV, from another place"
    # Nothing approximate went into tree or store: the answer afterwards is that of cold prefill.
    again = ask(server, prompt, semblend=ALONE)
    assert again.cached_tokens <= from_store.semblend["exact_tokens"]
    assert again.tokens == before.tokens
    press(server, texts)
    from_tiers = ask(server, prompt, semblend=ALONE)
    assert from_tiers.tokens == before.tokens


def test_routers_hear_where_a_donor_has_gone(
    server: EngineServer, texts: Texts, announced_at: tuple[str, object]
) -> None:
    passage = texts.passage(3000, PASSAGE_TOKENS)
    flush(server.base_url)
    ask(server, texts.question(passage, 11), rid="moves")
    press(server, texts)
    assert ask(server, texts.question(passage, 12)).reused_tokens > 0

    async def scenario() -> None:
        async with listening() as (index, feed):
            feed.follow(0, announced_at[0])
            sink = feed.sink_of(0)
            assert sink is not None
            await until(lambda: sink.counters.relocated > 0)
            assert [donor.partition("#")[0] for donor in index.donors(0)] == ["moves"]

    asyncio.run(scenario())


def test_without_its_pages_in_the_store_an_evicted_donor_serves_no_request(server: EngineServer, texts: Texts) -> None:
    """The control: the same steps, but the store is emptied before the recipient comes."""
    passage = texts.passage(2000, PASSAGE_TOKENS)
    prompt = texts.question(passage, 3)
    before = cold(server, prompt)
    ask(server, texts.question(passage, 4))
    press(server, texts)
    clear_store(server)
    after = ask(server, prompt)
    assert after.reused_tokens == 0
    assert after.tokens == before.tokens


def test_the_prompts_own_tokens_are_scored_alike_behind_kv_from_the_store(server: EngineServer, texts: Texts) -> None:
    passage, following = texts.passage(6000, PASSAGE_TOKENS), texts.passage(6000 + PASSAGE_TOKENS, 32)
    opening = texts.encode("You read texts aloud.\n\n")
    prompt = [*opening, *passage, *following]
    begin = len(opening) + len(passage)
    before = cold(server, prompt, score_from=begin)
    ask(server, texts.question(passage, 5))
    press(server, texts)
    blended = ask(server, prompt, score_from=begin)
    assert blended.reused_tokens > 0
    assert len(blended.forced) == len(before.forced) > 0
    loss = [sum(reply.forced) / len(reply.forced) for reply in (before, blended)]
    assert abs(loss[0] - loss[1]) < 0.2


def test_an_exact_prefix_comes_back_from_the_store(server: EngineServer, texts: Texts) -> None:
    flush(server.base_url)
    prompt = texts.question(texts.passage(3000, PASSAGE_TOKENS), 6)
    first = ask(server, prompt, semblend=ALONE)
    press(server, texts)
    again = ask(server, prompt, semblend=ALONE)
    assert cached_from(again, "storage") > len(prompt) - 1 - PAGE_TOKENS
    assert again.reused_tokens == 0
    assert again.tokens == first.tokens


def test_what_the_store_has_exactly_goes_before_what_donors_have(server: EngineServer, texts: Texts) -> None:
    """Head in the store, a second passage with a donor: the head is loaded exactly and no promise of ours hides it."""
    head, passage = texts.passage(7000, PASSAGE_TOKENS), texts.passage(8000, PASSAGE_TOKENS)
    prompt = [*head, *passage, *texts.encode(QUESTION)]
    before = cold(server, prompt)
    ask(server, head, semblend=ALONE, max_new_tokens=1)
    ask(server, texts.question(passage, 7))
    press(server, texts)
    served = ask(server, prompt)
    assert cached_from(served, "storage") == PASSAGE_TOKENS
    assert served.reused_tokens == 0
    assert served.tokens == before.tokens


def test_tenants_do_not_meet_in_the_store(server: EngineServer, texts: Texts) -> None:
    passage = texts.passage(9000, PASSAGE_TOKENS)
    donor = texts.question(passage, 8)
    flush(server.base_url)
    ask(server, donor, extra_key="tenant-a")
    press(server, texts)
    strangers: tuple[dict[str, str], ...] = ({"extra_key": "tenant-b"}, {"cache_salt": "tenant-a"}, {})
    for other in strangers:
        assert ask(server, donor, semblend=ALONE, max_new_tokens=1, **other).cached_tokens == 0
        assert ask(server, texts.question(passage, 9), max_new_tokens=1, **other).reused_tokens == 0
    assert ask(server, texts.question(passage, 10), extra_key="tenant-a", max_new_tokens=1).reused_tokens > 0


def test_a_flush_empties_donors_and_store(server: EngineServer, texts: Texts) -> None:
    passage = texts.passage(10000, PASSAGE_TOKENS)
    donor = texts.question(passage, 11)
    ask(server, donor)
    flush(server.base_url)
    assert ask(server, texts.question(passage, 12), max_new_tokens=1).reused_tokens == 0
    assert ask(server, donor, semblend=ALONE, max_new_tokens=1).cached_tokens == 0


def test_nothing_leaked_and_nothing_was_contained(server: EngineServer, tier_events: Path) -> None:
    flush(server.base_url)
    log = server.log_path.read_text(encoding="utf-8", errors="replace")
    assert "leak" not in log.lower()
    assert "Traceback" not in log
    assert "fault_contained" not in {json.loads(line)["event"] for line in tier_events.read_text().splitlines()}
    assert server.stays_healthy()
