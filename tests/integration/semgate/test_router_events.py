"""The router with real event sockets: requests follow announced blocks and donors, and stop following what is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fakes.kv_publisher import BLOCK, EnginePool, KvPublisher
from tests.fakes.raw_client import Reply, ask
from tests.fakes.router_rig import Rig, router_rig
from tests.waiting import PATIENCE_S, until

from semblend.contract import FaultContained
from semblend.contract.donor_event import tenant_of_salt
from semblend.integration.announce import DonorAnnouncer
from semblend.integration.border import Border
from semblend.integration.donor_socket import DonorSocket
from semgate.events.wire import BlockStored
from semgate.router import gateway

PROMPT = list(range(100, 164))
REVEALED = {"tell_shared_evidence": True}  # one tenant: it may see where its requests were placed and why


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def at(publisher: KvPublisher) -> str:
    return f";events={publisher.endpoint};replay={publisher.replay_endpoint}"


async def complete(rig: Rig, tokens: Sequence[int] = PROMPT, **more: Any) -> Reply:
    body = {"model": "m", "stream": True, "prompt": list(tokens), **more}
    return await ask(rig.port, "/v1/completions", body)


def placed(reply: Reply) -> tuple[str | None, str | None]:
    return reply.header("x-semantickv-replica"), reply.header("x-semblend-routing-path")


async def indexed(rig: Rig, replica: str, blocks: int) -> None:
    line = f'semgate_index_blocks{{replica="{replica}"}} {float(blocks)}'.encode()
    await until(lambda: line in rig.gateway.metrics.text())


def test_requests_follow_the_announced_blocks(tmp_path: Path) -> None:
    async def work() -> None:
        async with KvPublisher() as first, KvPublisher() as second:
            options: dict[str, Any] = {**REVEALED, "routing_policy": "precise_prefix", "block_tokens": BLOCK}
            async with router_rig(tmp_path, announced={"a": at(first), "b": at(second)}, **options) as rig:
                await second.subscribed()
                pool = EnginePool()
                await second.publish(pool.store(PROMPT))
                await indexed(rig, "b", len(PROMPT) // BLOCK)
                replies = [await complete(rig) for _ in range(4)]
                assert {placed(reply) for reply in replies} == {("b", "exact_route")}
                record = rig.gateway.ring.latest(1)[0]
                assert (record.exact_blocks, record.prompt_blocks) == (16, 16)
                salted = await complete(rig, cache_salt="of another tenant")
                assert placed(salted)[1] == "cold_route", "equal tokens under another salt are other blocks"

    run(work())


@pytest.mark.parametrize("is_late", [False, True])
def test_a_starting_router_is_ready_when_it_knows_what_was_announced(
    is_late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or when that takes too long: a replica whose buffer is read slowly must not keep the router away."""

    async def work() -> None:
        async with KvPublisher() as publisher:
            await publisher.publish(EnginePool().store(PROMPT))
            publisher.answers_replays.clear()
            options: dict[str, Any] = {**REVEALED, "routing_policy": "precise_prefix", "block_tokens": BLOCK}
            async with router_rig(tmp_path, announced={"b": at(publisher)}, **options) as rig:
                await until(lambda: publisher.replays == 1)
                assert (await ask(rig.port, "/readyz", method="GET")).status == 503
                if is_late:
                    monkeypatch.setattr(gateway, "CATCH_UP_SECONDS", -1.0)
                else:
                    publisher.answers_replays.set()
                await until(lambda: rig.gateway.not_ready_because() is None)
                publisher.answers_replays.set()
                await indexed(rig, "b", len(PROMPT) // BLOCK)
                assert placed(await complete(rig)) == ("b", "exact_route")

    run(work())


def test_a_cleared_cache_is_no_longer_followed(tmp_path: Path) -> None:
    async def work() -> None:
        async with KvPublisher() as publisher:
            options: dict[str, Any] = {**REVEALED, "routing_policy": "precise_prefix", "block_tokens": BLOCK}
            async with router_rig(tmp_path, announced={"b": at(publisher)}, **options) as rig:
                await publisher.subscribed()
                pool = EnginePool()
                await publisher.publish(pool.store(PROMPT))
                await indexed(rig, "b", 16)
                await publisher.publish(pool.clear())
                await indexed(rig, "b", 0)
                assert placed(await complete(rig))[1] == "cold_route"

    run(work())


def test_a_router_that_starts_late_learns_the_past(tmp_path: Path) -> None:
    """A restarted router has an empty index; the publisher's replay buffer fills it."""

    async def work() -> None:
        async with KvPublisher() as publisher:
            pool = EnginePool()
            await publisher.publish(pool.store(PROMPT))
            options: dict[str, Any] = {**REVEALED, "routing_policy": "precise_prefix", "block_tokens": BLOCK}
            for _ in range(2):
                async with router_rig(tmp_path, announced={"b": at(publisher)}, **options) as rig:
                    await indexed(rig, "b", 16)
                    assert placed(await complete(rig)) == ("b", "exact_route")

    run(work())


def test_the_engines_own_block_size_is_taken_over(tmp_path: Path) -> None:
    async def work() -> None:
        async with KvPublisher() as publisher:
            options: dict[str, Any] = {
                **REVEALED,
                "routing_policy": "precise_prefix",
                "block_tokens": 16,
                "health_seconds": 0.05,
            }
            async with router_rig(tmp_path, announced={"b": at(publisher)}, **options) as rig:
                await publisher.subscribed()
                await publisher.publish([BlockStored([1, 2], None, PROMPT[:64], 32)])
                await indexed(rig, "b", 2)
                while placed(await complete(rig)) != ("b", "exact_route"):
                    await asyncio.sleep(0.02)
                assert rig.gateway.ring.latest(1)[0].prompt_blocks == 2

    run(work())


def test_a_replica_set_again_under_its_name_starts_cold(tmp_path: Path) -> None:
    async def work() -> None:
        async with KvPublisher() as first, KvPublisher() as second:
            options: dict[str, Any] = {**REVEALED, "routing_policy": "precise_prefix", "block_tokens": BLOCK}
            async with router_rig(tmp_path, announced={"b": at(first)}, **options) as rig:
                await first.subscribed()
                await first.publish(EnginePool().store(PROMPT))
                await indexed(rig, "b", 16)
                origins = {each.name: each.origin for each in rig.replicas}
                moved = (f"{origins['a']};name=a", f"{origins['b']};name=b{at(second)}")
                change = rig.gateway.reloader.set_replicas(moved, "test")
                assert (change.added, change.removed) == (("b",), ("b",))
                await second.subscribed()
                assert placed(await complete(rig))[1] == "cold_route"
                await second.publish(EnginePool().store(PROMPT))
                await indexed(rig, "b", 16)
                assert placed(await complete(rig)) == ("b", "exact_route")

    run(work())


def test_without_events_a_prefix_goes_where_it_went(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, routing_policy="precise_prefix", block_tokens=BLOCK) as rig:
            replies = [await complete(rig) for _ in range(5)]
            assert placed(replies[0])[1] == "cold_route"
            assert {placed(reply) for reply in replies[1:]} == {(placed(replies[0])[0], "exact_route")}

    run(work())


def test_a_dead_replica_is_not_believed_when_it_returns(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", routing_policy="precise_prefix", block_tokens=BLOCK) as rig:
            await complete(rig)
            assert placed(await complete(rig)) == ("a", "exact_route")
            await rig.replica("a").die()
            assert (await complete(rig)).status == 502
            await rig.replica("a").start()
            assert placed(await complete(rig)) == ("a", "cold_route"), "it restarted with an empty cache"

    run(work())


def test_a_request_is_placed_where_its_donors_are(tmp_path: Path) -> None:
    key = tmp_path / "donors.key"
    key.write_bytes(b"a key that engines and routers share")
    faults: list[FaultContained] = []
    shared = np.random.default_rng(1).integers(0, 50_000, 1_500).astype(np.uint32)

    async def work() -> None:
        socket = DonorSocket("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", 100)
        announcer = DonorAnnouncer(lambda: socket, key.read_bytes().strip(), Border(faults.append, logging.getLogger()))
        try:
            announced = {"b": f";donors={socket.endpoints[0]}"}
            options: dict[str, Any] = {**REVEALED, "routing_policy": "semantic_placement", "donors_key_file": key}
            async with router_rig(tmp_path, announced=announced, **options) as rig:
                prompt = [7, 8, 9, 10, 11, *shared.tolist()]
                number = 0
                async with asyncio.timeout(PATIENCE_S):
                    while True:  # a subscriber that is still connecting misses what is sent meanwhile
                        announcer.loadable(f"d{number}", shared, tenant_of_salt(None), None)
                        number += 1
                        reply = await complete(rig, [number, *prompt])
                        if placed(reply) == ("b", "semantic_placement"):
                            break
                        await asyncio.sleep(0.05)
                assert float(reply.header("x-semblend-routing-similarity") or 0) > 0.5
                assert rig.gateway.ring.latest(1)[0].donor_tokens > 300
        finally:
            await asyncio.to_thread(announcer.close)
        assert faults == []

    run(work())


def test_a_publisher_that_lies_is_no_longer_believed(tmp_path: Path) -> None:
    async def work() -> None:
        async with KvPublisher() as first, KvPublisher() as liar:
            options: dict[str, Any] = {**REVEALED, "routing_policy": "precise_prefix", "block_tokens": BLOCK}
            async with router_rig(tmp_path, announced={"a": at(first), "b": at(liar)}, **options) as rig:
                for replica in rig.replicas:
                    replica.cached_tokens = 0
                await liar.subscribed()
                pool = EnginePool()
                prompts = [[n, *PROMPT] for n in range(40)]
                for each in prompts:
                    await liar.publish(pool.store(each))
                await indexed(rig, "b", 40 * (len(prompts[0]) // BLOCK))
                # Log-probabilities of the prompt make engines ignore their cache; the publisher has no part in it.
                for prompt in prompts[:8]:
                    assert placed(await complete(rig, prompt, prompt_logprobs=1))[0] == "b"
                for prompt in prompts[8:12]:
                    assert placed(await complete(rig, prompt)) == ("b", "exact_route")
                assert b'semgate_events_believed{replica="b"} 0.0' in rig.gateway.metrics.text()
                replies = [placed(await complete(rig, prompt)) for prompt in prompts[12:]]
                assert {path for _, path in replies} == {"cold_route"}
                assert {name for name, _ in replies} == {"a", "b"}, "placed by load"

    run(work())
