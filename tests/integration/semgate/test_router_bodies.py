"""Bodies of requests in the router's memory: bounded for all requests together, let go when an answer begins."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.fakes.raw_client import Exchange, ask, chat
from tests.fakes.router_rig import Rig, router_rig
from tests.waiting import PATIENCE_S

from sembase.http.server import HttpServer
from semgate.router.app import RouterApp

BODY = json.dumps(chat("x" * 1_000_000)).encode()
CHAT = "/v1/chat/completions"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


@asynccontextmanager
async def second_front(rig: Rig) -> AsyncIterator[tuple[RouterApp, int]]:
    """Another app on the same gateway, whose insides the test can see."""
    app = RouterApp(rig.gateway)
    server = HttpServer(app, host="127.0.0.1", port=0, shutdown_seconds=5.0)
    try:
        yield app, await server.start()
    finally:
        await server.stop()


def test_nothing_of_a_request_is_held_while_its_answer_streams(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a") as rig, second_front(rig) as (app, port):
            rig.replica("a").mode = "stall_in_stream"
            await ask(port, "/v1/models", method="GET")
            body = json.dumps(chat("x" * 8_000_000)).encode()
            exchange = await Exchange.open(port)
            tracemalloc.start()
            try:
                await exchange.send("POST", CHAT, body)
                await exchange.head()
                await exchange.first_chunk()
                grown_bytes = tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
            assert app.bodies.held_bytes == 0
            assert grown_bytes < 1.5 * len(body), "the replica of this test holds it once; the router must not"
            await exchange.close()

    run(work())


def test_more_bodies_than_the_process_may_hold_are_refused_until_others_are_gone(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", first_byte_seconds=30.0) as rig, second_front(rig) as (app, port):
            app.bodies.max_bytes = 2_500_000
            replica = rig.replica("a")
            replica.mode = "hang"
            first = await Exchange.open(port)
            await first.send("POST", CHAT, BODY)
            while replica.requests == 0:
                await asyncio.sleep(0.01)
            assert app.bodies.held_bytes == len(BODY)
            refused = await ask(port, body=BODY)
            assert (refused.status, refused.error_code) == (503, "overloaded")
            assert (refused.header("retry-after"), refused.header("connection")) == ("1", "close")
            assert app.bodies.held_bytes == len(BODY)
            await first.close()
            await replica.left.wait()
            replica.mode = "ok"
            while app.bodies.held_bytes:
                await asyncio.sleep(0.01)
            assert (await ask(port, body=BODY)).events[-1] == "[DONE]"
            assert app.bodies.held_bytes == 0

    run(work())


def test_two_claims_of_a_tenant_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, "a", trust_tenant_header=True) as rig:
            named = {"x-tenant-id": "alice", "X-Tenant-ID": "bob"}
            reply = await ask(rig.port, body=chat(), headers=named)
            assert (reply.status, reply.error_code) == (400, "ambiguous_tenant")
            assert rig.replica("a").requests == 0

    run(work())
