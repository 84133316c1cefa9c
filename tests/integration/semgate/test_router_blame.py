"""Whose fault a failure is: a request of its own doing shuts no replica off, and no full pool empties what is known."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.clock import LONG_S, MovableClock, run_with_clock
from tests.fakes.fault_replica import FaultReplica, Mode, _plain
from tests.fakes.raw_client import ask, chat
from tests.fakes.router_rig import Rig, router_rig
from tests.waiting import PATIENCE_S, until

from sembase.http.client import HttpClient, HttpFault, StreamedReply
from semgate.http.held_body import BodyBudget, HeldBody
from semgate.router.request.forward import _ending
from semgate.router.request.placement import FleetPlacement, Placement


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


def says(replica: FaultReplica, status: int) -> None:
    async def serve(path: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await _plain(writer, status, b"{}")
        return True

    replica._serve = serve  # type: ignore[method-assign]


def fails_once(replica: FaultReplica, tried: set[bytes]) -> None:
    serve = replica._serve

    async def fail_first(path: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if path != "/v1/chat/completions" or body in tried:
            return await serve(path, body, reader, writer)
        tried.add(body)
        await _plain(writer, 500, b"{}")
        return True

    replica._serve = fail_first  # type: ignore[method-assign]


def states(rig: Rig) -> dict[str, str]:
    return {each.name: each.state() for each in rig.gateway.roster.fleet}


@pytest.mark.parametrize("status", [500, 501, 505])
def test_a_request_that_breaks_every_replica_shuts_none_off(status: int, tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            for each in rig.replicas:
                says(each, status)
            replies = [await ask(rig.port, body=chat()) for _ in range(8)]
            assert {reply.status for reply in replies} == {status}
            assert states(rig) == {"a": "ready", "b": "ready"}

    run(work())


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_replica_that_fails_what_another_answers_is_shut_off(status: int, tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            rig.stop_clocks()
            says(rig.replica("a"), status)
            replies = [await ask(rig.port, body=chat()) for _ in range(8)]
            assert {reply.status for reply in replies} == {200}
            await until(lambda: states(rig) == {"a": "open", "b": "ready"})

    run(work())


def test_a_request_that_fails_once_shuts_no_replica_off(tmp_path: Path) -> None:
    """As with a picture whose server answers at the second try."""

    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            tried: set[bytes] = set()
            for each in rig.replicas:
                fails_once(each, tried)
            for number in range(12):
                assert (await ask(rig.port, body=chat(f"picture {number}"))).status == 200
            await until(lambda: not rig.gateway._confirmation._running)
            assert [each.breaker.opened for each in rig.gateway.roster.fleet] == [0, 0]
            assert any(seen.path == "/v1/completions" for each in rig.replicas for seen in each.seen), "it was checked"

    run(work())


POISON = "resets whatever computes it"


def is_reset_by(replica: FaultReplica, poison: str, *, in_stream: bool = False) -> None:
    """The replica resets the connection of a request that contains ``poison``, before or during its answer."""
    serve = replica._serve

    async def reset(path: str, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if poison.encode() not in body:
            return await serve(path, body, reader, writer)
        if in_stream:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            writer.write(b"9\r\ndata: 1\n\n\r\n")
            await writer.drain()
        writer.close()
        return False

    replica._serve = reset  # type: ignore[method-assign]


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize("names", [("a",), ("a", "b", "c")])
def test_requests_that_make_replicas_reset_shut_none_off(
    names: tuple[str, ...], in_stream: bool, tmp_path: Path
) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, *names) as rig:
            rig.stop_clocks()
            for each in rig.replicas:
                is_reset_by(each, POISON, in_stream=in_stream)
            replies = [await ask(rig.port, body=chat(POISON)) for _ in range(8)]
            assert {reply.status for reply in replies} == {200 if in_stream else 502}
            await until(lambda: not rig.gateway._confirmation._running)
            assert [each.breaker.opened for each in rig.gateway.roster.fleet] == [0] * len(names)
            assert (await ask(rig.port, body=chat())).complete

    run(work())


@pytest.mark.parametrize("mode", ["die_on_request", "die_after_head", "die_in_stream"])
def test_a_replica_that_resets_the_routers_own_request_is_shut_off(mode: Mode, tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            rig.stop_clocks()
            rig.replica("a").mode = mode
            for _ in range(2):  # one of them meets it
                await ask(rig.port, body=chat())
            await until(lambda: states(rig) == {"a": "open", "b": "ready"})

    run(work())


@pytest.mark.parametrize(("takes_ours", "state"), [(True, "ready"), (False, "open")])
def test_a_connect_that_times_out_counts_if_the_routers_own_request_fails_too(
    takes_ours: bool, state: str, tmp_path: Path
) -> None:
    """An engine whose accept queue is full refuses new connections while it answers on others."""

    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            rig.stop_clocks()
            full = rig.replica("a").origin
            for client in (rig.gateway._upstream, *(() if takes_ours else (rig.gateway._probes,))):
                _times_out_at(client, full)
            replies = [await ask(rig.port, body=chat()) for _ in range(8)]
            assert all(reply.complete and reply.status == 200 for reply in replies)
            await until(lambda: not rig.gateway._confirmation._running)
            assert states(rig) == {"a": state, "b": "ready"}

    run(work())


def _times_out_at(client: HttpClient, full: str) -> None:
    send = client.send

    async def times_out(origin: str, *words: Any, **more: Any) -> StreamedReply:
        if origin == full:
            raise HttpFault("connect", sent=False, detail="timed out")
        return await send(origin, *words, **more)

    client.send = times_out  # type: ignore[method-assign]


@pytest.mark.parametrize("stream", [False, True])
def test_slow_answers_shut_no_replica_off_and_leave_the_router_ready(stream: bool, tmp_path: Path) -> None:
    def computing(rig: Rig) -> int:
        return sum(each.requests for each in rig.replicas)

    async def work(clock: MovableClock) -> None:
        async with router_rig(tmp_path, first_byte_seconds=LONG_S) as rig:
            for each in rig.replicas:
                each.mode = "hang"
            asking = [asyncio.ensure_future(ask(rig.port, body=chat(stream=stream))) for _ in range(8)]
            await until(lambda: computing(rig) == 8)
            await clock.skip(1.1 * LONG_S)
            if stream:  # an answer that has not begun is asked of the other replica
                await until(lambda: computing(rig) == 16)
                await clock.skip(1.1 * LONG_S)
            assert {reply.status for reply in await asyncio.gather(*asking)} == {504}
            assert [each.breaker.opened for each in rig.gateway.roster.fleet] == [0, 0]
            assert rig.gateway.readiness() == {"status": "ready"}
            if not stream:
                assert computing(rig) == 8, "computed once each"

    run_with_clock(work)


def test_open_breakers_do_not_take_the_router_out_of_service(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            rig.stop_clocks()
            for each in rig.gateway.roster.fleet:
                for _ in range(3):
                    each.fault()
            assert set(states(rig).values()) == {"open"}
            assert rig.gateway.readiness() == {"status": "ready"}
            for each in rig.gateway.roster.fleet:
                each.healthy = False
            assert rig.gateway.readiness()["reason"] == "no replica is ready"

    run(work())


def test_with_every_breaker_open_one_replica_is_tried_and_may_recover(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path) as rig:
            rig.stop_clocks()
            for each in rig.replicas:
                says(each, 503)
            for _ in range(4):
                await ask(rig.port, body=chat())
            assert set(states(rig).values()) == {"open"}
            seen = sum(each.requests for each in rig.replicas)
            assert (await ask(rig.port, body=chat())).status == 503
            assert sum(each.requests for each in rig.replicas) == seen + 1, "one is asked, no second one"
            for each in rig.replicas:
                del each._serve
            reply = await ask(rig.port, body=chat())
            assert reply.status == 200
            assert states(rig)[reply.header("x-semantickv-replica") or ""] == "ready", "an answer shuts it on again"

    run(work())


def test_only_a_refused_connection_means_that_the_replica_is_gone() -> None:
    assert _ending(HttpFault("no_connection", sent=False)) == "unknown"
    assert _ending(HttpFault("connect", sent=False, refused=True)) == "gone"
    assert _ending(HttpFault("connect", sent=False, detail="timed out")) == "suspect"
    assert _ending(HttpFault("connect", sent=False, detail="OSError")) == "suspect"
    assert _ending(HttpFault("reset", sent=True)) == "suspect"
    assert _ending(HttpFault("protocol", sent=True)) == "suspect"
    assert _ending(HttpFault("timeout", sent=True)) == "unknown"


def noted_losses(rig: Rig) -> list[int]:
    lost: list[int] = []
    rig.gateway.placer.forget = lost.append  # type: ignore[method-assign,assignment]
    return lost


async def placement_on(rig: Rig, name: str) -> Placement:
    held = HeldBody(BodyBudget(1024), "t")
    held.data = b"{}"
    asked = await rig.gateway.inspector.inspect_request("/v1/chat/completions", (), held, "t")
    place = rig.gateway.placements(await rig.gateway.evidence.collect(*asked))
    others = frozenset(each.name for each in rig.replicas if each.name != name)
    return place(others)


def test_a_lost_cache_is_forgotten_once_until_the_replica_answers(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a") as rig:
            lost = noted_losses(rig)
            for _ in range(3):
                (await placement_on(rig, "a")).end("gone")
            assert lost == [0]
            placement = await placement_on(rig, "a")
            placement.first_byte(200)
            placement.end("answered")
            for _ in range(3):
                (await placement_on(rig, "a")).end("gone")
            assert lost == [0, 0]

    run(work())


def test_a_late_fault_does_not_empty_the_successor_of_a_slot(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a") as rig:
            placement = await placement_on(rig, "a")
            assert isinstance(placement, FleetPlacement)
            rig.gateway.reloader.set_replicas((f"{rig.replicas[0].origin};name=later",), "test")
            lost = noted_losses(rig)
            placement.end("gone")
            assert lost == []

    run(work())


def test_what_a_replica_refuses_is_not_believed_to_be_there(tmp_path: Path) -> None:
    async def work() -> None:
        prompt = {"model": "m", "prompt": list(range(640))}
        async with router_rig(tmp_path, "a", routing_policy="precise_prefix") as rig:
            noted: list[int] = []
            note = rig.gateway.evidence.blocks.answered
            rig.gateway.evidence.blocks.answered = lambda slot, keys: (noted.append(keys.size), note(slot, keys))[1]  # type: ignore[method-assign,func-returns-value]
            says(rig.replica("a"), 400)
            assert (await ask(rig.port, "/v1/completions", prompt)).status == 400
            assert noted == []
            del rig.replica("a")._serve
            assert (await ask(rig.port, "/v1/completions", prompt)).status == 200
            assert noted == [40]

    run(work())


def test_nothing_behind_the_models_length_is_looked_at(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", routing_policy="precise_prefix", model_tokens=160) as rig:
            await ask(rig.port, "/v1/completions", {"model": "m", "prompt": list(range(640))})
            assert rig.gateway.ring.latest(1)[0].prompt_blocks == 10

    run(work())


def test_a_stream_cut_by_the_shutdown_is_written_down_as_cut(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", shutdown_seconds=0.1) as rig:
            rig.replica("a").resume.clear()
            running = asyncio.ensure_future(ask(rig.port, body=chat()))
            await rig.replica("a").answering.wait()
        assert not (await running).complete
        assert rig.gateway.ring.latest(1)[0].outcome == "cut"

    run(work())
