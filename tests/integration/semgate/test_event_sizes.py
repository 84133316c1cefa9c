"""An event message beyond the size limit is not read: the connection is closed, and later messages arrive again."""

from __future__ import annotations

import asyncio

import pytest
from tests.fakes.kv_publisher import KvPublisher
from tests.waiting import PATIENCE_S, until

from sembase import zmq_stream
from sembase.ordered_stream import ResetReason
from sembase.zmq_stream import StreamOptions, ZmqStream, new_context


class Kept:
    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    async def deliver(self, payload: bytes) -> None:
        self.payloads.append(payload)

    def reset(self, reason: ResetReason) -> None:
        return


def test_a_message_that_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_stream, "MAX_MESSAGE_BYTES", 10_000)

    async def act() -> None:
        context, kept = new_context(), Kept()
        async with KvPublisher() as publisher:
            options = StreamOptions(publisher.endpoint, check_seconds=0.2, reorder_seconds=0.01)
            stream = ZmqStream(context, options, kept, stamp=lambda _: None)
            running = asyncio.create_task(stream.run())
            try:
                await publisher.subscribed()
                await publisher.publish_payload(b"a" * 9_000)
                await until(lambda: kept.payloads)
                await publisher.publish_payload(b"b" * 10_001)
                await publisher.subscribed()  # again, over a new connection
                await publisher.publish_payload(b"c")
                await until(lambda: kept.payloads[-1:] == [b"c"])
                assert [len(each) for each in kept.payloads] == [9_000, 1]
                assert stream.counters.connects == 2
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        context.destroy(linger=0)

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))
