"""With ``min_first_byte_ms`` a stream is shifted as a whole: no burst after its first byte tells its true time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.clock import MovableClock, run_with_clock
from tests.fakes.fault_replica import FaultReplica
from tests.fakes.raw_client import Exchange, chat
from tests.fakes.router_rig import router_rig
from tests.waiting import until

from sembase.http.client import HttpFault
from semgate.http.first_byte import MAX_HELD_BYTES, READ_AHEAD, shifted
from semgate.proxy.service import ProxyService, open_server
from semgate.settings import ProxySettings

LIMIT_S = 10_000.0
NEVER_S = 1e9
NO_LIMITS: dict[str, Any] = {"connect_seconds": NEVER_S, "idle_seconds": NEVER_S, "min_first_byte_ms": LIMIT_S * 1e3}
Gate = AbstractAsyncContextManager[tuple[int, FaultReplica]]


def is_reading_ahead() -> bool:
    """The first byte of a stream is here, and its end is not."""
    return any(task.get_name() == READ_AHEAD for task in asyncio.all_tasks())


@asynccontextmanager
async def routed(folder: Path) -> AsyncIterator[tuple[int, FaultReplica]]:
    async with router_rig(folder, "a", first_byte_seconds=NEVER_S, **NO_LIMITS) as rig:
        yield rig.port, rig.replica("a")


@asynccontextmanager
async def proxied(folder: Path) -> AsyncIterator[tuple[int, FaultReplica]]:
    engine = FaultReplica(name="a")
    await engine.start()
    settings = ProxySettings(
        upstream_base_url=engine.origin, trace_output_dir=folder, port=0, proxy_timeout_seconds=NEVER_S, **NO_LIMITS
    )
    service = ProxyService(settings)
    server = open_server(service, settings)
    try:
        yield await server.start(), engine
    finally:
        await server.stop()
        await service.stop()
        await engine.die()


@pytest.mark.parametrize("gate", [routed, proxied])
def test_later_tokens_keep_their_distance_from_the_first(tmp_path: Path, gate: Callable[[Path], Gate]) -> None:
    async def act(loop: MovableClock) -> None:
        async with gate(tmp_path) as (port, engine):
            engine.resume.clear()
            exchange = await Exchange.open(port)
            await exchange.send("POST", "/v1/chat/completions", chat_body())
            await until(is_reading_ahead)
            await loop.skip(0.3 * LIMIT_S)
            engine.resume.set()  # the other tokens come 3,000 s after the first
            await until(lambda: not is_reading_ahead())
            await loop.skip(0.75 * LIMIT_S)
            await exchange.head()
            assert b"a-0" in await exchange.first_chunk()
            rest = asyncio.create_task(exchange.rest(200, ()))
            await loop.skip(0.2 * LIMIT_S)
            assert not rest.done()
            assert b"data" not in bytes(exchange.reader._buffer)  # type: ignore[attr-defined]
            await loop.skip(0.1 * LIMIT_S)
            reply = await rest
            assert reply.complete
            assert [f"a-{number}" in text for number, text in enumerate(reply.events[:3], 1)] == [True] * 3
            await exchange.close()

    run_with_clock(act)


def chat_body() -> bytes:
    return json.dumps(chat()).encode()


async def source(pieces: asyncio.Queue[bytes | HttpFault | None]) -> AsyncIterator[bytes]:
    while (piece := await pieces.get()) is not None:
        if isinstance(piece, HttpFault):
            raise piece
        yield piece


async def collect(chunks: AsyncIterator[bytes], got: list[bytes]) -> None:
    async for chunk in chunks:
        got.append(chunk)


def test_every_chunk_is_as_late_as_the_first() -> None:
    async def act(loop: MovableClock) -> None:
        pieces: asyncio.Queue[bytes | HttpFault | None] = asyncio.Queue()
        opened = shifted(source(pieces), LIMIT_S)
        entering = asyncio.create_task(opened.__aenter__())
        await loop.skip(0.0)
        for piece in (b"a", b"b", None):
            await loop.skip(0.25 * LIMIT_S)
            pieces.put_nowait(piece)
            await loop.skip(0.0)  # it arrives now
        await loop.skip(0.3 * LIMIT_S)
        got: list[bytes] = []
        collecting = asyncio.create_task(collect(await entering, got))
        await loop.skip(0.0)
        assert got == []
        await loop.skip(0.25 * LIMIT_S)
        assert got == [b"a"]
        await loop.skip(0.25 * LIMIT_S)
        assert got == [b"a", b"b"]
        assert not collecting.done()
        await loop.skip(0.25 * LIMIT_S)
        await collecting
        await opened.__aexit__(None, None, None)

    run_with_clock(act)


def test_what_breaks_the_stream_comes_after_what_it_had() -> None:
    async def act(loop: MovableClock) -> None:
        pieces: asyncio.Queue[bytes | HttpFault | None] = asyncio.Queue()
        for piece in (b"a", HttpFault("reset", sent=True)):
            pieces.put_nowait(piece)
        opened = shifted(source(pieces), LIMIT_S)
        entering = asyncio.create_task(opened.__aenter__())
        await loop.skip(0.0)
        await loop.skip(1.1 * LIMIT_S)
        got: list[bytes] = []
        collecting = asyncio.create_task(collect(await entering, got))
        await loop.skip(LIMIT_S)
        with pytest.raises(HttpFault, match="reset"):
            await collecting
        assert got == [b"a"]
        await opened.__aexit__(None, None, None)

    run_with_clock(act)


def test_a_stream_without_a_delay_is_passed_on_as_it_is() -> None:
    async def work() -> None:
        chunks = source(asyncio.Queue())
        async with shifted(chunks, 0.0) as same:
            assert same is chunks
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(work())


def test_a_shifted_stream_holds_a_bounded_number_of_bytes() -> None:
    async def act(loop: MovableClock) -> None:
        read = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal read
            while True:
                read += 1
                yield bytes(1024)
                await asyncio.sleep(0)

        opened = shifted(endless(), LIMIT_S)
        entering = asyncio.create_task(opened.__aenter__())
        for _ in range(20):
            await loop.skip(0.01 * LIMIT_S)
        assert read <= MAX_HELD_BYTES // 1024 + 1
        await loop.skip(LIMIT_S)
        chunks = await entering
        for _ in range(4 * MAX_HELD_BYTES // 1024):
            step = asyncio.ensure_future(anext(chunks))
            await asyncio.sleep(0)
            if not step.done():
                await loop.skip(LIMIT_S)
            assert len(await step) == 1024
        await opened.__aexit__(None, None, None)
        assert len(asyncio.all_tasks()) == 1

    run_with_clock(act)


def test_leaving_ends_the_reading() -> None:
    async def act(loop: MovableClock) -> None:
        opened = shifted(source(asyncio.Queue()), LIMIT_S)
        entering = asyncio.create_task(opened.__aenter__())
        await loop.skip(0.5 * LIMIT_S)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert len(asyncio.all_tasks()) == 1

    run_with_clock(act)
