"""One listener per replica: a stream that fails leaves no blocks behind."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import zmq.asyncio
from tests.waiting import PATIENCE_S

from sembase.zmq_stream import StreamOptions, ZmqStream
from semgate.events.feed import EventFeed
from semgate.index.blocks import BlockIndex

TOKENS = np.arange(8, dtype=np.uint32)


def test_a_stream_that_dies_empties_its_slot_and_listens_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        follow = ZmqStream._follow
        again = asyncio.Event()

        async def fails_once(self: ZmqStream, socket: zmq.asyncio.Socket) -> None:
            monkeypatch.setattr(ZmqStream, "_follow", follows)
            raise RuntimeError

        async def follows(self: ZmqStream, socket: zmq.asyncio.Socket) -> None:
            again.set()
            await follow(self, socket)

        monkeypatch.setattr(ZmqStream, "_follow", fails_once)
        feed = EventFeed(BlockIndex())
        slot = feed.add("one", StreamOptions("tcp://127.0.0.1:9"))
        feed.index.stored(slot, np.arange(2, dtype=np.uint64), None, TOKENS, 4, 1)
        await asyncio.wait_for(again.wait(), PATIENCE_S)
        assert (feed.index.blocks(slot), feed.statuses()[0].deaths) == (0, 1)
        await feed.close()

    asyncio.run(scenario())
