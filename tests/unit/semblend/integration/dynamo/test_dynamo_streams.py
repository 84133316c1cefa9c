from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.semblend.donors.announcements import KEY, announced, batch, words
from tests.waiting import until

from semblend.contract.donor_event import DonorEventError, DonorWithdrawn
from semblend.donors.packing import pack, unpack
from semblend.donors.zmq_feed import DonorFeed
from semblend.integration.announce import DonorAnnouncer
from semblend.integration.border import Border
from semblend.integration.donor_socket import DonorSocket
from semblend.integration.dynamo.provider import SemanticEvidenceProvider

LOG = logging.getLogger("dynamo streams")
TOKENS = words(1, 300)


def test_batches_round_trip_and_rubbish_is_refused() -> None:
    sent = batch(announced("d", TOKENS), DonorWithdrawn("e", "x"), rank=3)
    assert unpack(pack(sent)) == sent
    for rubbish in (b"", b"\xc1", b"\x93", b"\x80"):
        with pytest.raises(DonorEventError):
            unpack(rubbish)


def test_zeromq_brings_live_and_earlier_events() -> None:
    """Real sockets on loopback, the announcer of the adapters at one end, the provider's index at the other."""
    opened: list[DonorSocket] = []

    def open_socket() -> DonorSocket:
        opened.append(DonorSocket("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", 100))
        return opened[0]

    async def run() -> None:
        announcer = DonorAnnouncer(open_socket, KEY, Border(lambda _: None, LOG))
        provider = SemanticEvidenceProvider(KEY)
        feed = DonorFeed(provider.sink, provider.forget)
        try:
            announcer.loadable("early", TOKENS, None, None)
            await until(lambda: bool(opened))
            feed.follow(5, *opened[0].endpoints)
            await until(lambda: len(provider.index) == 1)
            announcer.loadable("late", words(2, 300), None, None)
            announcer.withdrawn("early", "x")
            await until(lambda: provider.donors((5, 0)) == ["late"])
            stream = feed.stream_of(5)
            assert stream is not None
            assert stream.counters.resyncs == 0
        finally:
            await asyncio.to_thread(announcer.close)
            await feed.close()
        assert len(provider.index) == 0

    asyncio.run(run())


def test_a_feed_that_lost_its_worker_holds_none_of_its_donors() -> None:
    async def run() -> None:
        provider = SemanticEvidenceProvider(KEY)
        provider.apply(5, batch(announced("d", TOKENS)))
        feed = DonorFeed(provider.sink, provider.forget)
        try:
            feed.leave(5)
            assert len(provider.index) == 0
        finally:
            await feed.close()

    asyncio.run(run())
