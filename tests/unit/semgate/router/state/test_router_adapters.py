"""An adapter is resolved once: blocks and donors are looked for under the same name, however the client gave it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from semgate.events.apply import ReplicaSink
from semgate.events.wire import BlockStored, encode_batch
from semgate.fleet import Endpoint, Replica
from semgate.http.request_body import read_request
from semgate.router.state.known_blocks import KnownBlocks


def test_blocks_and_donors_of_an_adapter_have_one_name() -> None:
    async def scenario() -> None:
        blocks = KnownBlocks(1 << 10, 60.0)
        blocks.add(Replica(Endpoint("a", "http://x", events="tcp://127.0.0.1:9"), 0))
        plain = read_request("/v1/completions", (), b'{"model": "base", "prompt": "x"}')
        in_place, beside = replace(plain, model="sql"), replace(plain, lora="sql")
        assert blocks.resolved(in_place).lora is None  # not announced as an adapter yet
        sink: ReplicaSink = blocks._feed._listeners["a#1"].sink
        await sink.deliver(encode_batch(1.0, [BlockStored([1], None, [1, 2], 2, lora_name="sql")]))
        seen = [blocks.resolved(each) for each in (plain, in_place, beside)]
        assert [each.lora for each in seen] == [None, "sql", "sql"]
        roots = [blocks.announced_root(each) for each in seen]
        assert roots[1] == roots[2] != roots[0]
        assert blocks.resolved(seen[1]) == seen[1]
        await blocks.close()

    asyncio.run(scenario())
