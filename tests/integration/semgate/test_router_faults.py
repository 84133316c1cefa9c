"""Replicas that fail in every way we know, over real sockets: nothing retryable is lost, nothing is generated twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.clock import LONG_S, MovableClock, run_with_clock
from tests.fakes.fault_replica import FaultReplica, Mode
from tests.fakes.raw_client import Exchange, Reply, ask, chat
from tests.fakes.router_rig import Rig, router_rig
from tests.waiting import PATIENCE_S, until


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def is_whole_answer(reply: Reply) -> bool:
    return reply.status == 200 and reply.complete and reply.events[-1] == "[DONE]"


def generated(rig: Rig) -> int:
    return sum(each.generated for each in rig.replicas)


@pytest.mark.parametrize("mode", ["error_500", "die_on_request", "die_after_head"])
def test_a_fault_before_the_first_byte_goes_unnoticed(mode: Mode, tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            rig.replica("a").mode = mode
            replies = await asyncio.gather(*(ask(rig.port, body=chat()) for _ in range(20)))
            assert all(is_whole_answer(reply) for reply in replies)
            assert {reply.header("x-semantickv-replica") for reply in replies} == {"b"}
            assert rig.replica("a").generated == 0
            assert rig.replica("b").generated == 20

    run(work())


@pytest.mark.parametrize("mode", ["hang", "hang_after_head"])
def test_a_hung_replica_is_left_and_its_connection_closed(mode: Mode, tmp_path: Path) -> None:
    async def work(clock: MovableClock) -> None:
        async with router_rig(tmp_path, first_byte_seconds=LONG_S) as rig:
            hung, other = rig.replicas
            hung.mode = mode
            asking = [asyncio.ensure_future(ask(rig.port, body=chat())) for _ in range(4)]
            # Both answers of the other replica are whole before the clock moves, or its streams count as silent.
            await until(lambda: hung.requests == 2 and sum(each.done() for each in asking) == 2)
            assert other.generated == 2, "requests of the replica that hangs have their time"
            await clock.skip(1.1 * LONG_S)
            assert all(is_whole_answer(reply) for reply in await asyncio.gather(*asking))
            assert other.generated == 4
            await hung.left.wait()

    run_with_clock(work)


def test_a_replica_that_does_not_listen_costs_no_request(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            await rig.replica("a").die()
            replies = [await ask(rig.port, body=chat()) for _ in range(10)]
            assert all(is_whole_answer(reply) for reply in replies)
            record = rig.gateway.ring.latest(10)[-1]
            assert [(each.replica, each.fault) for each in record.attempts] == [("a", "connect"), ("b", None)]

    run(work())


@pytest.mark.parametrize("mode", ["die_in_stream", "die_in_event", "stall_in_stream", "close_without_length"])
def test_a_replica_lost_in_mid_stream_is_reported_and_the_connection_closed(mode: Mode, tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, idle_seconds=0.3) as rig:
            rig.replica("a").mode = mode
            exchange = await Exchange.open(rig.port)
            await exchange.send("POST", "/v1/chat/completions", json.dumps(chat()).encode())
            reply = await exchange.rest(*await exchange.head())
            assert reply.status == 200
            assert not reply.complete
            assert reply.error_code == "replica_lost"
            assert "[DONE]" not in reply.events
            assert await exchange.is_closed()
            await exchange.close()
            assert rig.replica("b").requests == 0, "an answer that has begun must not be generated again"
            assert rig.gateway.ring.latest(1)[0].outcome == "cut"

    run(work())


def test_an_answer_that_is_no_stream_is_replaced_even_when_torn(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            rig.replica("a").mode = "die_in_json"
            reply = await ask(rig.port, body=chat(stream=False))
            assert reply.status == 200
            assert reply.complete
            assert json.loads(reply.body)["choices"][0]["message"]["content"] == "from b"

    run(work())


def test_what_stores_something_is_not_sent_twice(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            rig.replica("a").mode = "die_on_request"
            reply = await ask(rig.port, "/v1/responses", {"input": "x"})
            assert (reply.status, reply.error_code) == (502, "upstream_reset")
            assert rig.replica("b").requests == 0
            await until(lambda: not rig.gateway._confirmation._running)
            await rig.replica("a").die()  # now it surely never arrives, so another may be asked
            assert (await ask(rig.port, "/v1/responses", {"input": "x"})).status == 200

    run(work())


def test_with_every_replica_broken_the_client_gets_the_engines_own_words(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            for each in rig.replicas:
                each.mode = "error_500"
            reply = await ask(rig.port, body=chat())
            assert (reply.status, json.loads(reply.body)["error"]["message"]) == (500, "broken engine")
            assert sum(each.requests for each in rig.replicas) == 2

    run(work())


def test_with_every_replica_dead_the_error_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            rig.stop_clocks()
            for each in rig.replicas:
                await each.die()
            codes = {(reply.status, reply.error_code) for reply in [await ask(rig.port, body=chat()) for _ in range(8)]}
            assert codes == {(502, "upstream_unreachable")}
            attempts = [len(each.attempts) for each in rig.gateway.ring.latest(8)]
            assert (attempts[-1], attempts[0]) == (2, 1), "the breakers are open: one is tried, no second one"
            assert (await ask(rig.port, "/readyz", method="GET")).status == 200, "open breakers do not count"

    run(work())


def test_the_router_is_not_ready_once_health_checks_find_every_replica_dead(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, health_seconds=0.05) as rig:
            for each in rig.replicas:
                await each.die()
            await until(lambda: rig.gateway.not_ready_because() == "no replica is ready")
            assert (await ask(rig.port, "/readyz", method="GET")).status == 503

    run(work())


def test_a_replica_that_returns_is_used_again(tmp_path: Path) -> None:
    """Flapping: dies and comes back on its port several times while requests keep coming; none is lost."""

    async def work() -> None:
        async with router_rig(tmp_path, health_seconds=0.05) as rig:
            flapping = rig.replica("a")
            for _ in range(3):
                await flapping.die()
                down = [await ask(rig.port, body=chat()) for _ in range(6)]
                await flapping.start()
                up = [await ask(rig.port, body=chat()) for _ in range(6)]
                assert all(is_whole_answer(reply) for reply in [*down, *up])
            seen = flapping.generated
            while flapping.generated == seen:
                assert is_whole_answer(await ask(rig.port, body=chat()))
                await asyncio.sleep(0.02)

    run(work())


def test_no_request_is_lost_when_a_replica_dies_under_load(tmp_path: Path) -> None:
    """Fifty streams wait for their first token on two replicas, one is killed: every stream is whole."""

    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            victim = rig.replica("a")
            victim.mode = "hang_after_head"
            asking = [asyncio.ensure_future(ask(rig.port, body=chat())) for _ in range(50)]
            while victim.requests < 25:
                await asyncio.sleep(0.005)
            await victim.die()
            assert all(is_whole_answer(reply) for reply in await asyncio.gather(*asking))
            assert generated(rig) == 50

    run(work())


def test_a_client_that_leaves_stops_the_replica(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a") as rig:
            replica = rig.replica("a")
            replica.resume.clear()
            exchange = await Exchange.open(rig.port)
            await exchange.send("POST", "/v1/chat/completions", json.dumps(chat()).encode())
            await replica.answering.wait()
            await exchange.close()
            await replica.left.wait()
            await until(lambda: len(rig.gateway.ring) == 1)
            assert rig.gateway.ring.latest(1)[0].outcome == "client_left"
            assert rig.gateway.roster.fleet.views()[0].in_flight == 0

    run(work())


def test_a_client_that_leaves_before_the_first_byte_stops_the_replica(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            for each in rig.replicas:
                each.mode = "hang"
            exchange = await Exchange.open(rig.port)
            await exchange.send("POST", "/v1/chat/completions", json.dumps(chat()).encode())
            await rig.replica("a").asked.wait()
            await exchange.close()
            await rig.replica("a").left.wait()
            assert rig.replica("b").requests == 0, "no client waits for the answer any more"

    run(work())


def test_a_drained_replica_gets_nothing_new_and_ends_what_it_has(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            replica = rig.replica("a")
            replica.resume.clear()
            running = asyncio.ensure_future(ask(rig.port, body=chat()))
            await replica.answering.wait()
            rig.gateway.roster.set_draining("a", draining=True)
            later = [await ask(rig.port, body=chat()) for _ in range(4)]
            assert {reply.header("x-semantickv-replica") for reply in later} == {"b"}
            replica.resume.set()
            assert is_whole_answer(await running)

    run(work())


def test_open_streams_end_when_the_router_stops(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a") as rig:
            replica = rig.replica("a")
            replica.resume.clear()
            running = asyncio.ensure_future(ask(rig.port, body=chat()))
            await replica.answering.wait()
            replica.resume.set()
        assert is_whole_answer(await running)

    run(work())


def test_a_stream_longer_than_the_shutdown_ends_with_a_reason(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", shutdown_seconds=0.2) as rig:
            replica = rig.replica("a")
            replica.resume.clear()
            running = asyncio.ensure_future(ask(rig.port, body=chat()))
            await replica.answering.wait()
        reply = await running
        assert not reply.complete
        assert reply.error_code == "shutting_down"

    run(work())


def test_a_restarted_replica_is_no_longer_believed_to_hold_anything(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, routing_policy="prefix_hash") as rig:
            forgotten: list[int] = []
            forget: Callable[[int], None] = rig.gateway.placer.forget

            def noted(slot: int) -> None:
                forgotten.append(slot)
                forget(slot)

            rig.gateway.placer.forget = noted  # type: ignore[method-assign]
            await rig.replica("a").die()
            await rig.replica("b").die()
            await ask(rig.port, body=chat())
            assert sorted(forgotten) == [0, 1]

    run(work())


def test_the_rig_itself_serves(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            replies = [await ask(rig.port, body=chat()) for _ in range(4)]
            assert [reply.header("x-semblend-routing-worker") for reply in replies] == ["a", "b", "a", "b"]
            assert all(is_whole_answer(reply) for reply in replies)
            first: FaultReplica = rig.replicas[0]
            assert first.seen[0].path == "/v1/chat/completions"

    run(work())
