"""Donor events over a real NATS server: too large, away, and back again."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import nats
import numpy as np
import pytest
from numpy.typing import NDArray
from scripts.engines.ports import free_port
from tests.clock import LONG_S
from tests.engines.dynamo.deployment import KEY, NatsServer, missing
from tests.fakes.certificates import authority, needs_openssl, signed
from tests.waiting import PATIENCE_S, until, wait_until

from semblend.contract import FaultContained
from semblend.contract.donor_event import DonorBatch, DonorWithdrawn
from semblend.donors.packing import frame, pack
from semblend.integration.announce import DonorAnnouncer, open_announcer, open_nats_announcer
from semblend.integration.border import Border
from semblend.integration.dynamo import nats_feed
from semblend.integration.dynamo.nats_access import nats_access
from semblend.integration.dynamo.nats_feed import NatsDonorFeed
from semblend.integration.dynamo.nats_subjects import events_subject
from semblend.integration.dynamo.provider import SemanticEvidenceProvider
from semblend.plan.gates import Gates
from semblend.settings import Settings

pytestmark = pytest.mark.engine
LOG = logging.getLogger("nats events")


def words(seed: int, length: int) -> NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(100, 40_000, length).astype(np.uint32)


def opened(url: str, faults: list[FaultContained]) -> DonorAnnouncer:
    return open_nats_announcer(url, "9", KEY.encode(), Border(faults.append, LOG))


def test_a_donor_larger_than_a_message_is_left_out_and_the_others_arrive(nats_server: NatsServer) -> None:
    faults: list[FaultContained] = []

    async def run() -> None:
        provider = SemanticEvidenceProvider(KEY.encode())
        feed = NatsDonorFeed(nats_server.url, provider)
        await feed.start()
        announcer = opened(nats_server.url, faults)
        try:
            announcer.loadable("huge", words(1, 1_800_000), None, None)
            for number in range(40):
                announcer.loadable(f"d{number}", words(number, 60_000), None, None)  # too much for one message together
            await until(lambda: len(provider.index) == 40)
            assert "huge" not in provider.donors((9, 0))
            stream = feed.stream_of(9)
            assert stream is not None
            assert not stream.is_incomplete
        finally:
            await asyncio.to_thread(announcer.close)
            await feed.close()

    asyncio.run(run())
    assert not faults


def test_an_engine_announces_by_its_settings_alone(nats_server: NatsServer, tmp_path: Path) -> None:
    faults: list[FaultContained] = []
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    settings = Settings(donor_events=nats_server.url, donor_events_worker=11, donor_events_key_file=key_file)

    async def run() -> None:
        provider = SemanticEvidenceProvider(KEY.encode())
        feed = NatsDonorFeed(nats_server.url, provider)
        await feed.start()
        announcer = open_announcer(settings, Border(faults.append, LOG), Gates())
        try:
            announcer.loadable("set", words(3, 300), None, None)
            await until(lambda: "set" in provider.donors((11, 0)))
        finally:
            await asyncio.to_thread(announcer.close)
            await feed.close()

    asyncio.run(run())
    assert not faults


def test_a_publisher_that_never_answers_delays_no_other(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_feed, "REPLAY_S", LONG_S)  # what waits for it does not come within the test
    faults: list[FaultContained] = []

    async def run() -> None:
        provider = SemanticEvidenceProvider(KEY.encode())
        feed = NatsDonorFeed(nats_server.url, provider)
        await feed.start()
        mute = await nats.connect(nats_server.url)
        announcer = opened(nats_server.url, faults)
        try:
            payload = pack(DonorBatch(time.time(), (DonorWithdrawn("x", "y"),)))
            for worker_id in range(100, 110):
                await mute.publish(events_subject(str(worker_id)), frame(7, payload))  # begins with a gap
            await mute.flush()
            await until(lambda: feed.stream_of(109) is not None)
            announcer.loadable("heard", words(3, 300), None, None)
            await until(lambda: "heard" in provider.donors((9, 0)))
        finally:
            await asyncio.to_thread(announcer.close)
            await mute.close()
            await feed.close()

    asyncio.run(run())
    assert not faults


def test_a_server_that_is_away_is_a_fault_and_ends_in_time() -> None:
    if (why := missing()) is not None:
        pytest.skip(why)
    faults: list[FaultContained] = []
    announcer = opened(f"nats://127.0.0.1:{free_port()}", faults)
    announcer.loadable("a", words(1, 300), None, None)
    wait_until(lambda: faults)
    announcer.close()
    assert faults[0].stage == "announce"


def test_events_continue_after_the_server_restarts(tmp_path: Path) -> None:
    if (why := missing()) is not None:
        pytest.skip(why)
    faults: list[FaultContained] = []

    async def run() -> None:
        provider = SemanticEvidenceProvider(KEY.encode())
        first = NatsServer(tmp_path)
        with first:
            feed = NatsDonorFeed(first.url, provider)
            await feed.start()
            announcer = opened(first.url, faults)
            announcer.loadable("before", words(1, 300), None, None)
            await until(lambda: len(provider.index) == 1)
        second = NatsServer(tmp_path)
        second.port, second.url = first.port, first.url
        with second:
            try:
                numbers = iter(range(2, 2000))

                def arrived() -> bool:
                    announcer.loadable(f"after{(n := next(numbers))}", words(n, 300), None, None)
                    return any(name.startswith("after") for name in provider.donors((9, 0)))

                async with asyncio.timeout(PATIENCE_S):
                    while not arrived():
                        await asyncio.sleep(0.2)
            finally:
                await asyncio.to_thread(announcer.close)
                await feed.close()

    asyncio.run(run())


@needs_openssl
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_a_server_that_asks_for_a_password_and_a_certificate(tmp_path: Path) -> None:
    ours = authority(tmp_path, "ours")
    server, client = signed(tmp_path, "server", ours, "IP:127.0.0.1"), signed(tmp_path, "client", ours)
    tls = ("--tls", "--tlsverify", "--tlscert", str(server.cert), "--tlskey", str(server.key))
    options = (*tls, "--tlscacert", str(ours.cert), "--user", "engine", "--pass", "secret")
    access = nats_access(None, ours.cert, client.cert, client.key)
    faults: list[FaultContained] = []
    refusals: list[FaultContained] = []

    async def run(url: str) -> None:
        provider = SemanticEvidenceProvider(KEY.encode())
        without = nats_access(None, ours.cert, None, None)
        refused = open_nats_announcer(url, "8", KEY.encode(), Border(refusals.append, LOG), access=without)
        await until(lambda: refusals)
        await asyncio.to_thread(refused.close)
        feed = NatsDonorFeed(url, provider, access)
        await feed.start()
        announcer = open_nats_announcer(url, "9", KEY.encode(), Border(faults.append, LOG), access=access)
        try:
            announcer.loadable("d", words(1, 400), None, None)
            await until(lambda: provider.donors((9, 0)) == ["d"])
        finally:
            await asyncio.to_thread(announcer.close)
            await feed.close()

    with NatsServer(tmp_path, options) as running:
        asyncio.run(asyncio.wait_for(run(running.url.replace("//", "//engine:secret@")), PATIENCE_S))
    assert faults == []
