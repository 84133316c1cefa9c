"""A background task that dies is logged, its owner hears of it, and it runs again."""

from __future__ import annotations

import asyncio
import logging

import numpy as np
import pytest
import zmq
import zmq.asyncio

from semgate.events.feed import EventFeed, new_context
from semgate.events.kept_task import KeptTask
from semgate.events.subscriber import EventStream, StreamOptions
from semgate.index.blocks import BlockIndex

TOKENS = np.arange(8, dtype=np.uint32)


def test_a_death_is_logged_and_told_and_the_task_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        starts, deaths = 0, 0
        third = asyncio.Event()

        async def run() -> None:
            nonlocal starts
            starts += 1
            if starts == 1:
                raise OSError("what a client sent")
            if starts == 2:
                return  # an end without an error is a death too
            third.set()
            await asyncio.Event().wait()

        def died() -> None:
            nonlocal deaths
            deaths += 1

        kept = KeptTask("a task", run, died)
        await asyncio.wait_for(third.wait(), 20)
        assert (deaths, kept.deaths) == (2, 2)
        await kept.stop()
        assert starts == 3

    with caplog.at_level(logging.ERROR, logger="semgate"):
        asyncio.run(scenario())
    said = [record.__dict__["fields"] for record in caplog.records]
    assert [(each["task"], each["error"]) for each in said] == [("a task", "OSError"), ("a task", "ended")]
    assert "what a client sent" not in str(said)


def test_one_that_was_stopped_between_two_lives_stays_dead() -> None:
    async def scenario() -> None:
        starts = 0
        dead = asyncio.Event()

        async def run() -> None:
            nonlocal starts
            starts += 1

        kept = KeptTask("a task", run, dead.set)
        await asyncio.wait_for(dead.wait(), 20)
        await kept.stop()
        await asyncio.sleep(0.15)
        assert starts == 1

    asyncio.run(scenario())


def test_a_stream_that_dies_empties_its_slot_and_listens_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        follow = EventStream._follow
        again = asyncio.Event()

        async def fails_once(self: EventStream, socket: zmq.asyncio.Socket) -> None:
            monkeypatch.setattr(EventStream, "_follow", follows)
            raise RuntimeError

        async def follows(self: EventStream, socket: zmq.asyncio.Socket) -> None:
            again.set()
            await follow(self, socket)

        monkeypatch.setattr(EventStream, "_follow", fails_once)
        feed = EventFeed(BlockIndex())
        slot = feed.add("one", StreamOptions("tcp://127.0.0.1:9"))
        feed.index.stored(slot, np.arange(2, dtype=np.uint64), None, TOKENS, 4, 1)
        await asyncio.wait_for(again.wait(), 20)
        assert (feed.index.blocks(slot), feed.standings()[0].deaths) == (0, 1)
        await feed.close()

    asyncio.run(scenario())


def test_there_are_sockets_for_more_replicas_than_zeromq_allows_by_itself() -> None:
    context = new_context()
    assert context.get(zmq.MAX_SOCKETS) > 3 * 1024
    context.term()
