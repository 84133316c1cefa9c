"""Real vLLM publishes KV events: the router's index equals the engine's own table, its token ids the engine's."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scripts.engines.ports import free_port
from scripts.engines.server import EngineServer, launch
from scripts.engines.specs import SERVED_NAME, EngineOptions, vllm_missing, vllm_spec
from scripts.models.known import SMOLLM2
from tests.waiting import until

from sembase.zmq_stream import StreamOptions
from semgate.events.feed import EventFeed
from semgate.events.wire import engine_hash
from semgate.http.request_body import read_request
from semgate.index.blocks import BlockIndex
from semgate.index.keys import request_keys
from semgate.tokens.local import LocalTokens

pytestmark = [pytest.mark.engine, pytest.mark.slow]

HERE = Path(__file__).parent
BLOCK_TOKENS = 32
POOL_BLOCKS = 40
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NOTES = "\n".join(f"Note {n}: parcel {n * 37 % 101} went to locker {n * 17 % 53}." for n in range(24))
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class EventServer:
    server: EngineServer
    options: StreamOptions
    listing: Path

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            self.server.base_url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with _direct.open(request, timeout=300) as answer:
            raw = answer.read()
        found: dict[str, Any] = json.loads(raw) if raw else {}
        return found

    def complete(self, prompt: str, **more: object) -> dict[str, Any]:
        body = {"model": SERVED_NAME, "prompt": prompt, "max_tokens": 3, "temperature": 0, **more}
        return self.post(COMPLETIONS, body)

    def own_hashes(self) -> set[int]:
        return {engine_hash(bytes.fromhex(one)) for one in json.loads(self.listing.read_text())["hashes"]}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventServer]:
    missing = vllm_missing()
    if missing:
        pytest.skip(missing)
    listing = tmp_path_factory.mktemp("engine") / "listing.json"
    ports = free_port(), free_port()
    events = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{ports[0]}",
        "replay_endpoint": f"tcp://*:{ports[1]}",
    }
    extra = (
        *("--kv-events-config", json.dumps(events), "--block-size", str(BLOCK_TOKENS), "--max-model-len", "1024"),
        *("--num-gpu-blocks-override", str(POOL_BLOCKS), "--scheduler-cls", "listing_scheduler.ListingScheduler"),
        "--enable-prompt-tokens-details",
    )
    environment = {"PYTHONPATH": str(HERE), "KV_LISTING_PATH": str(listing)}
    options = EngineOptions(extra=extra, environment=environment, dev_mode=True, threads=1, startup_timeout_s=900.0)
    server = launch(vllm_spec(options))
    streams = StreamOptions(f"tcp://127.0.0.1:{ports[0]}", f"tcp://127.0.0.1:{ports[1]}", check_seconds=1.0)
    try:
        yield EventServer(server, streams, listing)
    finally:
        server.stop()


@asynccontextmanager
async def feeding(engine: EventServer) -> AsyncIterator[EventFeed]:
    """A router that starts now: what happened before comes from the replay buffer."""
    feed = EventFeed(BlockIndex())
    feed.add("vllm", engine.options)
    try:
        await until(lambda: feed.statuses()[0].next_seq is not None)
        yield feed
    finally:
        await feed.close()


async def matched_hashes(feed: EventFeed, engine: EventServer) -> set[int]:
    """The index's hashes once they equal the engine's own, or as they are after a long while."""
    with suppress(AssertionError):
        await until(lambda: _held(feed) == engine.own_hashes())
    return _held(feed)


def _held(feed: EventFeed) -> set[int]:
    return {hash_ for hash_, _ in feed.index.dump(0)}


def run(test: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 900))


def prompts() -> list[str]:
    """Shared beginnings of several lengths and tails of their own; together far more than the pool holds."""
    return [
        NOTES[: 400 * (1 + number % 3)] + f"\nQuestion {number}: " + " ".join(str(number * 100 + i) for i in range(50))
        for number in range(14)
    ]


def test_the_index_equals_the_engines_own_table_block_by_block(engine: EventServer) -> None:
    async def scenario() -> None:
        async with feeding(engine) as feed:
            for number, prompt in enumerate(prompts()):
                same = [asyncio.to_thread(engine.complete, prompt) for _ in range(1 + number % 2)]
                await asyncio.gather(*same)  # two at once: the engine keeps two copies of the same new blocks
                assert await matched_hashes(feed, engine) == engine.own_hashes()
            counters = feed.index.counters
            assert counters.removed_blocks > 0, "the pool was full and blocks went"
            assert (counters.orphan_blocks, counters.evicted_blocks) == (0, 0)
            standing = feed.statuses()[0]
            assert standing.block_tokens == BLOCK_TOKENS
            assert (standing.applied.malformed_batches, standing.applied.malformed_events) == (0, 0)
            assert standing.applied.passed_over == 0

    run(scenario())


def test_a_router_that_starts_again_has_the_same_index_from_replay(engine: EventServer) -> None:
    async def scenario() -> None:
        async with feeding(engine) as feed:
            assert await matched_hashes(feed, engine) == engine.own_hashes()
            assert len(engine.own_hashes()) > 20
            assert feed.statuses()[0].stream.replayed > 0

    run(scenario())


def test_what_the_index_promises_the_engine_confirms(engine: EventServer) -> None:
    """Leading blocks by our tokens and keys, against the cached tokens that the engine reports for the request."""

    async def scenario() -> None:
        tokens = LocalTokens(SMOLLM2.folder)
        async with feeding(engine) as feed:
            await asyncio.to_thread(engine.complete, NOTES + "\nFirst question?")
            await matched_hashes(feed, engine)
            prompt = NOTES + "\nQuite another question, longer than the first one?"
            body = json.dumps({"prompt": prompt}).encode()
            ids = await tokens.tokens_of(read_request(COMPLETIONS, (), body), body)
            assert ids is not None
            promised = {
                salt: int(feed.index.longest(request_keys(ids, BLOCK_TOKENS, feed.request_root(SERVED_NAME, salt)))[0])
                for salt in (None, "tenant a")
            }
            assert promised[None] > 5
            assert promised["tenant a"] == 0
            answer = await asyncio.to_thread(engine.complete, prompt)
            assert answer["usage"]["prompt_tokens"] == len(ids)
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == promised[None] * BLOCK_TOKENS
        await tokens.close()

    run(scenario())


def test_a_salted_request_is_found_under_its_salt_alone(engine: EventServer) -> None:
    async def scenario() -> None:
        tokens = LocalTokens(SMOLLM2.folder)
        async with feeding(engine) as feed:
            prompt = "A text that was not sent before. " + NOTES[:600]
            await asyncio.to_thread(lambda: engine.complete(prompt, cache_salt="tenant a"))
            assert await matched_hashes(feed, engine) == engine.own_hashes()
            body = json.dumps({"prompt": prompt}).encode()
            ids = await tokens.tokens_of(read_request(COMPLETIONS, (), body), body)
            assert ids is not None
            for salt, expected in (("tenant a", len(ids) // BLOCK_TOKENS), ("tenant b", 0), (None, 0)):
                keys = request_keys(ids, BLOCK_TOKENS, feed.request_root(SERVED_NAME, salt))
                assert int(feed.index.longest(keys)[0]) == expected, salt
        await tokens.close()

    run(scenario())


def test_a_reset_cache_empties_the_index(engine: EventServer) -> None:
    async def scenario() -> None:
        async with feeding(engine) as feed:
            await asyncio.to_thread(engine.post, "/reset_prefix_cache", {})
            await asyncio.to_thread(engine.complete, "After the reset. " * 30)  # vLLM tells of it with its next step
            assert await matched_hashes(feed, engine) == engine.own_hashes()
            assert 0 < feed.index.blocks(0) < 10
            assert feed.index.counters.clears == 1

    run(scenario())


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": [{"role": "user", "content": "What is the capital of France?"}]}),
    (CHAT, {"messages": [{"role": "system", "content": NOTES}, {"role": "user", "content": "Zürich 中文 🙂\n\n x"}]}),
    (
        CHAT,
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
                {"role": "assistant", "content": " answer with <|im_end|> inside "},
                {"role": "user", "content": ""},
            ],
        },
    ),
    (CHAT, {"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": False}),
    (COMPLETIONS, {"prompt": NOTES}),
    (COMPLETIONS, {"prompt": "<|im_start|>user\nplain text with marks<|im_end|>\n"}),
    (COMPLETIONS, {"prompt": " leading space, tabs\t and\r\n line ends "}),
]


@pytest.mark.parametrize(("path", "body"), REQUESTS)
def test_our_token_ids_are_the_engines(engine: EventServer, path: str, body: dict[str, Any]) -> None:
    source = LocalTokens(SMOLLM2.folder)
    raw = json.dumps({"model": SERVED_NAME, **body}).encode()
    ours = asyncio.run(source.tokens_of(read_request(path, (), raw), raw))
    asyncio.run(source.close())
    assert ours is not None
    assert ours.tolist() == engine.post("/tokenize", {"model": SERVED_NAME, **body})["tokens"]
