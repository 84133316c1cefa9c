"""A stream cut by the shutdown ends with an error event, and does not wait for a client that stopped reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any, cast

import pytest

from sembase.http.client import StreamedReply
from semgate.http.departure import ClientWatch
from semgate.http.headers import Headers
from semgate.http.reply_scan import ReplyFacts
from semgate.placement.decision import Decision
from semgate.router.request.answer import Answer, Client, pass_on
from semgate.router.request.placement import Ending
from semgate.router.request.trace import RequestTrace


class EndlessReply:
    status = 200
    headers: Headers = ((b"content-type", b"text/event-stream"), (b"transfer-encoding", b"chunked"))
    is_complete = False

    async def chunks(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def abort(self) -> None:
        return None


class AnyPlacement:
    decision = Decision(
        replica="a",
        path="cold_route",
        policy="round_robin",
        exact_blocks=0,
        donor_tokens=0,
        similarity=None,
        scores_ms=(),
        reason="x",
        decide_us=1.0,
    )
    origin = "http://a"
    predicted_first_byte_s = 0.0

    def first_byte(self, status: int) -> None:
        return None

    def suspect(self) -> None:
        return None

    def end(self, ending: Ending, facts: ReplyFacts | None = None) -> None:
        return None


@pytest.mark.parametrize("reads", [True, False])
def test_the_last_event_of_a_cut_stream_is_bounded(reads: bool) -> None:
    bodies: list[bytes] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        bodies.append(message.get("body", b""))
        if b"shutting_down" in bodies[-1] and not reads:
            await asyncio.Event().wait()

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError

    async def act() -> None:
        reply = EndlessReply()
        answer = Answer(cast(StreamedReply, reply), b"data: 1\n\n", reply.chunks(), is_whole=False, is_events=True)
        task = asyncio.create_task(
            pass_on(answer, AnyPlacement(), Client(send, ClientWatch(receive)), RequestTrace("r", "/v1/completions"))
        )
        while len(bodies) < 2:
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait((task,), timeout=120.0)
        task.cancel()
        assert done
        assert task.cancelled()

    asyncio.run(act())
    assert b"shutting_down" in bodies[-1]
