"""Limits of the server that hold for every request of a connection, not only for its first; its end in bounded time."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import MutableMapping
from typing import Any

import pytest
from tests.clock import LONG_S, MovableClock, run_with_clock
from tests.fakes.scripted_upstream import connected
from tests.unit.semgate.http.test_http_server import echo, play, serving
from tests.waiting import PATIENCE_S, until

from sembase.http.server import _KEEP_ALIVE_SECONDS, HttpServer
from sembase.http.server_protocol import Limits
from semgate.http.faults import Send, send_json
from semgate.http.request_body import Receive, read_body


@pytest.mark.parametrize("trailers", [b"X-Tenant-ID: victim\r\n", b"x-a: 1\r\nX-Tenant-ID: victim\r\n"])
def test_a_trailer_is_no_header_of_this_request_or_the_next(trailers: bytes) -> None:
    seen: list[list[bytes]] = []

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        body = await read_body(receive, tuple(scope["headers"]))
        seen.append([name for name, _ in scope["headers"]])
        await send_json(send, 200, body or b"{}")

    async def act() -> None:
        async with serving(app) as port, connected(port) as client:
            head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
            client.writer.write(head + b"2\r\n[]\r\n0\r\n" + trailers + b"\r\n")
            assert (await client.answer()).body == b"[]"
            client.send("GET", "/")
            await client.answer()

    play(act)
    assert seen == [[b"host", b"transfer-encoding"], [b"host"]]


@pytest.mark.parametrize("piece", [b"G", b"GET / HTTP/1.1\r\nhost: ", b"\r\n"])
def test_every_head_of_a_connection_has_its_time_limit(piece: bytes) -> None:
    async def act(clock: MovableClock) -> None:
        async with serving(echo, Limits(head_seconds=LONG_S)) as port, connected(port) as client:
            client.send("GET", "/")
            assert (await client.answer()).status == 200
            client.writer.write(piece)
            cut = asyncio.ensure_future(client.reader.read(1))
            while not cut.done():  # until the server has seen the piece and its limit has passed
                await clock.skip(LONG_S / 4)
            assert cut.result() == b""

    run_with_clock(act)


def test_a_quiet_kept_connection_is_no_slow_head() -> None:
    async def act(clock: MovableClock) -> None:
        limits = Limits(head_seconds=_KEEP_ALIVE_SECONDS / 4)
        async with serving(echo, limits) as port, connected(port) as client:
            for _ in range(2):
                client.send("POST", "/", b"{}")
                assert (await client.answer()).status == 200
                await clock.skip(_KEEP_ALIVE_SECONDS / 2)

    run_with_clock(act)


def test_a_stream_outlives_the_time_limits_of_its_request() -> None:
    limits, release = Limits(head_seconds=LONG_S, body_seconds=LONG_S), asyncio.Event()

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await read_body(receive, tuple(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await release.wait()
        await send({"type": "http.response.body", "body": b"b"})

    async def act(clock: MovableClock) -> None:
        async with serving(app, limits) as port, connected(port) as client:
            client.send("POST", "/", b"{}")
            await client.head()
            assert await client.chunk() == b"a"
            await clock.skip(3.0 * LONG_S)
            release.set()
            assert await client.chunk() == b"b"
            assert await client.chunk() == b"", "the end of a whole answer"

    run_with_clock(act)


async def flood(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    """Says goodbye when it is cut, as the router does."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        while True:
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        await send({"type": "http.response.body", "body": b"bye", "more_body": True})
        raise


async def _stalled(server: HttpServer) -> None:
    while not any(connection.is_stalled for connection in server._state.connections):  # type: ignore[union-attr]
        await asyncio.sleep(0.01)


def test_a_client_that_does_not_read_does_not_double_the_shutdown() -> None:
    async def act(clock: MovableClock) -> None:
        server = HttpServer(flood, host="127.0.0.1", port=0, shutdown_seconds=LONG_S)
        async with connected(await server.start()) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send("GET", "/")
            await _stalled(server)
            stopping = asyncio.ensure_future(server.stop())
            await clock.skip(0.0)
            await clock.skip(0.9 * LONG_S)
            assert not stopping.done(), "open streams keep their time"
            await clock.skip(0.2 * LONG_S)
            await until(stopping.done, "the limit is applied once, not twice")

    run_with_clock(act)


@pytest.mark.parametrize("reads", [True, False])
def test_a_second_signal_does_not_wait(reads: bool) -> None:
    async def wait_until_cut(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await send({"type": "http.response.body", "body": b"bye", "more_body": True})
            raise

    async def act() -> None:
        server = HttpServer(wait_until_cut if reads else flood, host="127.0.0.1", port=0, shutdown_seconds=60.0)
        async with connected(await server.start()) as client:
            client.send("GET", "/")
            if reads:
                await client.head()
            else:
                client.writer.transport.pause_reading()  # type: ignore[attr-defined]
                await _stalled(server)
            serving_task = asyncio.create_task(server.serve_until_signal())
            await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGTERM)
            while not server.is_stopping:
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(serving_task, PATIENCE_S)
            if reads:
                assert await client.chunk() == b"bye"

    play(act)
