"""Bodies in the proxy's memory are bounded for all requests together; two claims of a tenant are refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.fakes.scripted_upstream import Call, ask, connected
from tests.unit.semgate.proxy.running_proxy import CHAT, chat_body, play, proxying

BODY = chat_body("x" * 1_000_000)


def test_more_bodies_than_the_process_may_hold_are_refused_until_others_are_gone(tmp_path: Path) -> None:
    async def act() -> None:
        release, begun = asyncio.Event(), asyncio.Event()

        async def script(call: Call) -> None:
            begun.set()
            await release.wait()
            call.reply(b"{}")

        async with proxying(script, tmp_path) as running, connected(running.port) as first:
            bodies = running.service.app.bodies
            bodies.max_bytes = 2_500_000
            first.send("POST", CHAT, BODY)
            await begun.wait()
            refused = await ask(running.port, "POST", CHAT, BODY)
            assert (refused.status, json.loads(refused.body)["error"]["code"]) == (503, "overloaded")
            assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
            assert bodies.held_bytes == len(BODY)
            release.set()
            assert (await first.answer()).status == 200
            assert (await ask(running.port, "POST", CHAT, BODY)).status == 200
            while bodies.held_bytes:
                await asyncio.sleep(0)

    play(act)


def test_two_claims_of_a_tenant_are_refused_where_they_count(tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        call.reply(b"{}")

    async def act() -> None:
        headers = (("x-tenant-id", "alice"), ("x-tenant-id", "bob"))
        for trusts, status in ((True, 400), (False, 200)):
            async with proxying(script, tmp_path / str(trusts), trust_tenant_header=trusts) as running:
                answer = await ask(running.port, "POST", CHAT, chat_body("a"), headers)
                assert answer.status == status
                assert len(running.upstream.calls) == (0 if trusts else 1)

    play(act)
