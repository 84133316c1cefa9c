"""A real vLLM server announces its donors; the router's index must say what the engine then does."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from scripts.engines.ports import free_port
from scripts.engines.specs import vllm_missing
from tests.engines.vllm.connector.client import Ask, Reply
from tests.engines.vllm.connector.connector_server import SHORT, ConnectorServer, Kind, start
from tests.engines.vllm.connector.kinds import BYTES_PER_TOKEN
from tests.waiting import until

from semblend.contract import DonorEvicted, DonorRegistered
from semblend.donors.index import DonorIndex
from semblend.donors.sink import DonorSink
from semblend.donors.zmq_feed import DonorFeed

pytestmark = pytest.mark.engine

KEY = b"a key for tests only"
SLOT = np.zeros(1, np.int32)


@pytest.fixture(scope="module")
def announcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConnectorServer, str]]:
    missing = vllm_missing()
    if missing:
        pytest.skip(missing)
    key_file = tmp_path_factory.mktemp("key") / "key"
    key_file.write_bytes(KEY)
    port = free_port()
    environment = {
        "SEMBLEND_DONOR_EVENTS": f"tcp://127.0.0.1:{port}",
        "SEMBLEND_DONOR_EVENTS_KEY_FILE": str(key_file),
    }
    options = {"host_bytes": 2_200 * BYTES_PER_TOKEN, "cached_donors": False, **SHORT}
    running = start(Kind(options, environment=environment))
    try:
        yield running, f"tcp://127.0.0.1:{port}"
    finally:
        running.server.stop()
        shutil.rmtree(running.folder, ignore_errors=True)


def prompt(seed: int, tokens: int) -> list[int]:
    return np.random.default_rng(seed).integers(1_000, 20_000, tokens).tolist()  # type: ignore[no-any-return]


def living(engine: ConnectorServer) -> set[str]:
    """The engine's donors by its own event stream."""
    found: set[str] = set()
    for event in engine.events():
        if isinstance(event, DonorRegistered):
            found.add(event.donor_id)
        elif isinstance(event, DonorEvicted):
            found.discard(event.donor_id)
    return found


async def ask(engine: ConnectorServer, what: Ask) -> Reply:
    return await asyncio.to_thread(engine.client.ask, what)


async def poke(engine: ConnectorServer) -> None:
    """An idle engine takes no step, and reports nothing."""
    await ask(engine, Ask([7, 8, 9], capture=False))


def test_the_router_knows_what_the_engine_can_load_and_what_it_no_longer_can(
    announcing: tuple[ConnectorServer, str],
) -> None:
    engine, endpoint = announcing

    async def scenario(index: DonorIndex, feed: DonorFeed[DonorSink]) -> None:
        document = prompt(1, 700)
        donor = Ask([*prompt(2, 24), *document, *prompt(3, 9)], salt="acme")
        await asyncio.to_thread(engine.wait_for_donor, await ask(engine, donor))
        feed.follow(0, endpoint)  # after the donor: it must come from the replay
        await until(lambda: len(index.donors(0)) == 1)
        assert set(index.donors(0)) == living(engine)

        asked = [*prompt(4, 30), *document, *prompt(5, 12)]
        tokens = np.array(asked, np.uint32)
        expected = int(index.expected(tokens, "acme", None, SLOT)[0])
        assert index.expected(tokens, None, None, SLOT)[0] == 0, "another tenant's donor"
        stranger = await ask(engine, Ask(asked))
        assert stranger.semblend["reused_tokens"] == 0
        reply = await ask(engine, Ask(asked, salt="acme"))
        reused = reply.semblend["reused_tokens"]
        assert reused > 500
        assert abs(expected - reused) <= 80, f"expected {expected}, reused {reused}"

        for seed in range(10, 16):  # more than the store holds: donors leave, and the router hears of it
            await ask(engine, Ask(prompt(seed, 640)))
            await poke(engine)
        await until(lambda: set(index.donors(0)) == living(engine) and len(living(engine)) <= 4)
        assert any(isinstance(event, DonorEvicted) and event.reason == "capacity" for event in engine.events())

        await asyncio.to_thread(partial(engine.client.reset, donors=True))
        await poke(engine)
        await until(lambda: index.donors(0) == [])
        stream, sink = feed.stream_of(0), feed.sink_of(0)
        assert stream is not None
        assert sink is not None
        counted = sink.counters
        assert counted.malformed == counted.unknown == stream.counters.resyncs == 0
        assert counted.purges >= 1

    async def body() -> None:
        index = DonorIndex(KEY)
        feed = DonorFeed(partial(DonorSink, index), index.forget)
        try:
            await scenario(index, feed)
        finally:
            await feed.close()

    asyncio.run(body())
    assert "contained a fault" not in engine.log
