"""Tenants hear nothing of each other: not by headers, not by a path that ignores the salt, not in what is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kv_publisher import BLOCK, EnginePool, KvPublisher
from tests.fakes.raw_client import Reply, ask, chat
from tests.fakes.router_rig import Rig, router_rig
from tests.waiting import PATIENCE_S, until

PROMPT = list(range(100, 420))
PATH, SIMILARITY = "x-semblend-routing-path", "x-semblend-routing-similarity"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


async def complete(rig: Rig, key: str) -> Reply:
    body = {"model": "m", "prompt": PROMPT}
    return await ask(rig.port, "/v1/completions", body, headers={"authorization": f"Bearer {key}"})


@pytest.mark.parametrize("policy", ["precise_prefix", "prefix_hash"])
def test_what_one_tenant_sent_does_not_place_another(policy: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, routing_policy=policy) as rig:
            assert (await complete(rig, "one")).header(PATH) == "cold_route"
            assert (await complete(rig, "one")).header(PATH) == "exact_route"
            assert (await complete(rig, "two")).header(PATH) == "cold_route"

    run(work())


@pytest.mark.parametrize("revealed", [False, True])
def test_announced_evidence_is_revealed_only_by_the_operators_leave(revealed: bool, tmp_path: Path) -> None:
    async def work() -> None:
        async with KvPublisher() as engine:
            options: dict[str, Any] = {"routing_policy": "precise_prefix", "block_tokens": BLOCK}
            announced = {"b": f";events={engine.endpoint};replay={engine.replay_endpoint}"}
            async with router_rig(tmp_path, announced=announced, tell_shared_evidence=revealed, **options) as rig:
                await engine.subscribed()
                await engine.publish(EnginePool().store(PROMPT))
                line = f'semgate_index_blocks{{replica="b"}} {float(len(PROMPT) // BLOCK)}'.encode()
                await until(lambda: line in rig.gateway.metrics.text())
                assert b"semgate_index_orphan_blocks_total 0.0" in rig.gateway.metrics.text()
                assert b"semgate_index_evicted_blocks_total 0.0" in rig.gateway.metrics.text()
                assert b'semgate_events_unreadable_total{replica="b"} 0.0' in rig.gateway.metrics.text()
                reply = await complete(rig, "two")
                assert reply.header("x-semantickv-replica") == "b", "placed by it all the same"
                assert reply.header(PATH) == ("exact_route" if revealed else None)
                assert reply.header(SIMILARITY) is None
                assert rig.gateway.ring.latest(1)[0].route == "exact_route"

    run(work())


def test_with_salts_on_only_paths_that_honour_them_pass(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", inject_cache_salt=True) as rig:
            for path in ("/v1/messages", "/generate", "/v1/responses", "/v1/embeddings"):
                reply = await ask(rig.port, path, chat())
                assert (reply.status, reply.error_code) == (400, "path_not_isolated")
            assert rig.replica("a").requests == 0
            assert (await ask(rig.port, "/v1/chat/completions", chat())).status == 200
            assert (await ask(rig.port, "/v1/models", method="GET")).status == 200
            assert (await ask(rig.port, "/tokenize", {"prompt": "x"})).status == 200
        async with router_rig(tmp_path, "a") as rig:
            assert (await ask(rig.port, "/v1/messages", chat())).status == 200

    run(work())


def test_a_path_is_written_down_as_the_pattern_that_let_it_through(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a") as rig:
            assert (await ask(rig.port, "/v1/models/canary-77", method="GET")).status == 200
            assert rig.gateway.ring.latest(1)[0].path == "/v1/models/*"
        written = b"".join(each.read_bytes() for each in (tmp_path / "routing").glob("*.jsonl"))
        assert b"/v1/models/*" in written
        assert b"canary" not in written

    run(work())


def test_a_request_whose_evidence_fails_is_placed_by_load_and_says_why(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", routing_policy="semantic_locality") as rig:
            nested = "[" * 900 + "]" * 900  # deeper than what dumps it again can go
            raw = f'{{"messages": [{{"role": "user", "content": "x", "tool_calls": {nested}}}]}}'.encode()
            json.loads(raw)
            assert (await ask(rig.port, "/v1/chat/completions", raw)).status == 200
            record = rig.gateway.ring.latest(1)[0]
            assert record.route in ("cold_route", "error_fallback")

            async def broken(*_: object) -> None:
                raise RecursionError("canary")

            rig.gateway.evidence._collect = broken  # type: ignore[method-assign,assignment]
            assert (await ask(rig.port, body=chat())).status == 200
            record = rig.gateway.ring.latest(1)[0]
            assert record.route == "error_fallback"
            assert record.reason == "RecursionError while gathering evidence; placed by load"

    run(work())
