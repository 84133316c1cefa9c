from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import until

from sembase.event_batch import published_s
from semblend.contract import FaultContained
from semblend.contract.donor_event import (
    DonorBatch,
    DonorsPurged,
    DonorWithdrawn,
    GatesAnnounced,
    GenerationReset,
    tenant_of_salt,
)
from semblend.donors.index import DonorIndex
from semblend.donors.packing import pack
from semblend.donors.sink import DonorSink
from semblend.donors.zmq_feed import DonorFeed
from semblend.integration.announce import DonorAnnouncer
from semblend.integration.border import Border
from semblend.integration.donor_socket import DonorSocket
from semblend.plan.gates import ADAPTER_GATES, Gates

KEY = b"a key for tests only"
LOG = logging.getLogger("donor-feed")
SLOTS = np.zeros(2, np.int32)


def text(seed: int, count: int = 400) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.random.default_rng(seed).integers(0, 50_000, count).astype(np.uint32)


GATES = Gates(boundary_recompute_tokens=16, max_context_share=0.5)


class Engine:
    """A real publisher on loopback, as a connector has one. ``endpoints`` keep their ports over a restart."""

    def __init__(self, endpoints: tuple[str, ...] = ("tcp://127.0.0.1:*",) * 2, buffer_batches: int = 1000) -> None:
        self.socket = DonorSocket(endpoints[0], endpoints[1], buffer_batches)
        self.endpoints = self.socket.endpoints
        self.faults: list[FaultContained] = []
        self.announcer = DonorAnnouncer(lambda: self.socket, KEY, Border(self.faults.append, LOG), gates=GATES)


Feed = DonorFeed[DonorSink]


def run(scenario: Callable[[DonorIndex, Feed], Awaitable[None]]) -> None:
    async def body() -> None:
        index = DonorIndex(KEY, max_donors=64, max_anchors=1 << 14)
        feed = DonorFeed(partial(DonorSink, index), index.forget)
        try:
            await scenario(index, feed)
        finally:
            await feed.close()

    asyncio.run(body())


def test_what_a_connector_announces_is_expected_by_the_router_and_what_it_withdraws_is_not() -> None:
    engine = Engine()

    async def scenario(index: DonorIndex, feed: Feed) -> None:
        engine.announcer.loadable("early", text(1), tenant_of_salt("acme"), None)
        feed.follow(1, engine.endpoints[0], engine.endpoints[1])
        await until(lambda: index.donors(1) == ["early"] and index.gates(1) == GATES)
        asked = np.concatenate([text(7, 20), text(1), text(8, 30)])
        assert index.expected(asked, "acme", None, SLOTS)[1] > 250
        assert index.expected(asked, "other", None, SLOTS).sum() == 0
        engine.announcer.loadable("late", text(2), None, None)
        await until(lambda: len(index.donors(1)) == 2)
        engine.announcer.withdrawn("early", "capacity")
        await until(lambda: index.donors(1) == ["late"])
        assert index.expected(asked, "acme", None, SLOTS).sum() == 0
        engine.announcer.purged("reset")
        await until(lambda: index.donors(1) == [])
        feed.leave(1)
        assert feed.stream_of(1) is None
        assert index.gates(1) == ADAPTER_GATES

    try:
        run(scenario)
    finally:
        engine.announcer.close()
    assert not engine.faults


def test_a_router_later_than_the_buffer_receives_the_whole_state() -> None:
    engine = Engine(buffer_batches=2)

    async def scenario(index: DonorIndex, feed: Feed) -> None:
        for number in range(12):
            engine.announcer.loadable(f"d{number}", text(number), None, None)
            await asyncio.sleep(0)
        await until(lambda: engine.socket.buffer.lacks(0) or engine.announcer._queue.empty())
        while not engine.socket.buffer.lacks(0):  # batches may have been few
            engine.announcer.loadable("more", text(99), None, None)
            await asyncio.sleep(0.02)
        engine.announcer.withdrawn("d3", "capacity")
        feed.follow(0, engine.endpoints[0], engine.endpoints[1])
        wanted = {f"d{number}" for number in range(12)} - {"d3"}
        await until(lambda: wanted <= set(index.donors(0)))
        assert "d3" not in index.donors(0)

    try:
        run(scenario)
    finally:
        engine.announcer.close()


def test_an_engine_that_starts_again_has_no_donors_of_its_former_life() -> None:
    first = Engine()
    ended: list[Engine] = []

    async def scenario(index: DonorIndex, feed: Feed) -> None:
        first.announcer.loadable("old", text(1), None, None)
        feed.follow(0, *first.endpoints)
        await until(lambda: index.donors(0) == ["old"])
        await asyncio.to_thread(first.announcer.close)
        second = Engine(first.endpoints)
        ended.append(second)
        second.announcer.loadable("new", text(2), None, None)
        await until(lambda: index.donors(0) == ["new"])

    try:
        run(scenario)
    finally:
        first.announcer.close()
        for engine in ended:
            engine.announcer.close()


def sink_of(index: DonorIndex) -> DonorSink:
    return DonorSink(index, 0)


@given(st.binary(max_size=60))
def test_no_payload_breaks_the_sink(payload: bytes) -> None:
    sink = sink_of(DonorIndex(KEY, max_donors=4, max_anchors=64))
    asyncio.run(sink.deliver(payload))
    assert published_s(payload) is not None or sink.counters.malformed == 1


def test_messages_are_counted_by_what_they_say() -> None:
    sink = sink_of(DonorIndex(KEY, max_donors=4, max_anchors=64))
    asyncio.run(
        sink.deliver(pack(DonorBatch(5.0, (GenerationReset(1), DonorWithdrawn("x", "y"), DonorsPurged(None, "z")))))
    )
    asyncio.run(sink.deliver(b"\xc1"))
    counters = sink.counters
    assert (counters.generations, counters.withdrawn, counters.purges, counters.malformed) == (1, 1, 1, 1)
    sink.apply(DonorBatch(6.0, (GatesAnnounced({"min_run_tokens": 96}), GatesAnnounced({"min_run_tokens": 0}))))
    assert (counters.gates, counters.malformed) == (1, 2)
    assert published_s(pack(DonorBatch(5.0, ()))) == 5.0
