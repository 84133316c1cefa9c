"""A real SGLang server announces its donors to a router's index."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from scripts.engines.generate import flush, generate
from tests.engines.sglang.listening import listening
from tests.engines.sglang.running import Shared
from tests.engines.sglang.texts import Texts
from tests.waiting import until

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SLOT = np.zeros(1, np.int32)
PASSAGE_TOKENS = 480


def test_the_router_knows_what_the_tree_holds(running: Shared, texts: Texts) -> None:
    server = running.server
    flush(server.base_url)

    async def scenario() -> None:
        async with listening() as (index, feed):
            passage = texts.passage(1000, PASSAGE_TOKENS)
            await asyncio.to_thread(
                generate, server.base_url, texts.question(passage, 1), max_new_tokens=1, cache_salt="acme", rid="told"
            )
            feed.follow(0, running.announcements)  # after the donor: it must come from the replay
            await until(lambda: [donor.partition("#")[0] for donor in index.donors(0)] == ["told"])
            asked = texts.question(passage, 2)
            expected = int(index.expected(np.array(asked, np.uint32), "acme", None, SLOT)[0])
            assert index.expected(np.array(asked, np.uint32), None, None, SLOT)[0] == 0, "another tenant's donor"
            reply = await asyncio.to_thread(generate, server.base_url, asked, max_new_tokens=1, cache_salt="acme")
            assert reply.reused_tokens > 0.8 * PASSAGE_TOKENS
            assert abs(expected - reply.reused_tokens) <= 48, f"expected {expected}, reused {reply.reused_tokens}"
            await asyncio.to_thread(flush, server.base_url)
            await until(lambda: index.donors(0) == [])
            stream, sink = feed.stream_of(0), feed.sink_of(0)
            assert stream is not None
            assert sink is not None
            counted = sink.counters
            assert counted.malformed == counted.unknown == stream.counters.resyncs == 0
            assert counted.purges >= 1

    asyncio.run(scenario())
