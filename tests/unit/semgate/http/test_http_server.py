"""The server around a plain ASGI app: limits, shapes of its own errors, departures, graceful end."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.fakes.scripted_upstream import ask, connected
from tests.waiting import PATIENCE_S

from sembase.errors import ConfigurationError
from sembase.http.server import App, HttpServer
from sembase.http.server_protocol import Limits
from semgate.http.departure import ClientWatch
from semgate.http.faults import Send, send_json
from semgate.http.request_body import ClientGone, Receive, read_body


@asynccontextmanager
async def serving(app: App, limits: Limits | None = None, shutdown_seconds: float = 5.0) -> AsyncIterator[int]:
    server = HttpServer(app, host="127.0.0.1", port=0, limits=limits, shutdown_seconds=shutdown_seconds)
    port = await server.start()
    try:
        yield port
    finally:
        await server.stop()
        assert server.open_connections == 0 or await _emptied(server)


async def _emptied(server: HttpServer) -> bool:
    while server.open_connections:
        await asyncio.sleep(0)
    return True


def play(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await act()

    asyncio.run(bounded())


async def echo(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    body = await read_body(receive, tuple(scope["headers"]))
    await send_json(send, 200, json.dumps({"method": scope["method"], "bytes": len(body)}).encode())


def error_of(body: bytes) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_requests_are_served_on_one_connection() -> None:
    async def act() -> None:
        async with serving(echo) as port, connected(port) as client:
            for size in (0, 10, 300_000):
                client.send("POST", "/", b"x" * size)
                answer = await client.answer()
                assert json.loads(answer.body)["bytes"] == size

    play(act)


def test_an_unreadable_head_gets_an_error_in_our_shape() -> None:
    async def act() -> None:
        async with serving(echo) as port, connected(port) as client:
            client.writer.write(b"nonsense\r\n\r\n")
            answer = await client.answer()
            assert (answer.status, error_of(answer.body)["code"]) == (400, "bad_request")
            assert await client.reader.read() == b""

    play(act)


@pytest.mark.parametrize(
    ("sent", "limits"),
    [
        (b"GET / HTTP/1.1\r\nhost:", Limits(head_seconds=0.05)),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nab", Limits(body_seconds=0.05)),
    ],
)
def test_a_request_that_never_gets_here_is_ended(sent: bytes, limits: Limits) -> None:
    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        with pytest.raises(ClientGone):
            await read_body(receive, ())

    async def act() -> None:
        async with serving(app, limits) as port, connected(port) as client:
            client.writer.write(sent)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.reader.readexactly(1)

    play(act)


def test_more_connections_than_allowed_get_an_error() -> None:
    async def act() -> None:
        async with serving(echo, Limits(max_connections=1)) as port, connected(port) as first:
            first.send("GET", "/")
            assert (await first.answer()).status == 200
            async with connected(port) as second:
                answer = await second.answer()
                assert (answer.status, error_of(answer.body)["code"]) == (503, "overloaded")

    play(act)


def test_a_client_that_stops_reading_is_let_go() -> None:
    ended = asyncio.Event()

    async def flood(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await read_body(receive, ())
        try:
            with ClientWatch(receive):
                await send({"type": "http.response.start", "status": 200, "headers": []})
                while True:
                    await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        except ClientGone:
            ended.set()

    async def act() -> None:
        async with serving(flood, Limits(stall_seconds=0.1)) as port, connected(port) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send("GET", "/")
            await ended.wait()

    play(act)


@pytest.mark.parametrize("started", [False, True])
def test_an_error_inside_the_app_tells_no_trace(started: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if started:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("SECRET PROMPT")

    async def act() -> None:
        async with serving(broken) as port:
            answer = await ask(port, "GET", "/")
            if started:
                assert (answer.body, answer.complete) == (b"", False)
            else:
                assert (answer.status, error_of(answer.body)["code"]) == (500, "internal_error")
            assert b"SECRET" not in answer.body

    with caplog.at_level(logging.DEBUG):
        play(act)
    assert "SECRET" not in caplog.text
    assert "Traceback" not in caplog.text
    (record,) = [record for record in caplog.records if record.getMessage() == "the app failed"]
    assert record.fields["exception"] == "RuntimeError"  # type: ignore[attr-defined]
    assert record.fields["place"].startswith("test_http_server.py:")  # type: ignore[attr-defined]


@pytest.mark.parametrize("body_bytes", [2, 1_000_000])  # a large one makes the server stop reading for a while
@pytest.mark.parametrize("phase", ["waiting", "streaming"])
def test_a_departure_is_noticed(phase: str, body_bytes: int) -> None:
    gone, begun = asyncio.Event(), asyncio.Event()

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await read_body(receive, ())
        try:
            with ClientWatch(receive):
                if phase == "streaming":
                    await send({"type": "http.response.start", "status": 200, "headers": []})
                begun.set()
                await asyncio.Event().wait()
        except ClientGone:
            gone.set()

    async def act() -> None:
        async with serving(app) as port:
            async with connected(port) as client:
                client.send("POST", "/", b"x" * body_bytes)
                await begun.wait()
            await gone.wait()

    play(act)


def test_a_client_that_left_before_the_watch_began_is_gone() -> None:
    read, lost, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        await read_body(receive, ())
        read.set()
        assert (await receive())["type"] == "http.disconnect"
        lost.set()
        try:
            with ClientWatch(receive):
                await asyncio.Event().wait()
        except ClientGone:
            gone.set()

    async def act() -> None:
        async with serving(app) as port:
            async with connected(port) as client:
                client.send("POST", "/", b"{}")
                await read.wait()
            await lost.wait()
            await gone.wait()

    play(act)


def test_who_cancels_the_work_is_not_taken_for_a_client_that_left() -> None:
    async def act() -> None:
        async def receive() -> MutableMapping[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        async def work() -> None:
            with ClientWatch(receive):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(act)


def test_stopping_lets_open_replies_end_and_takes_no_new_ones() -> None:
    async def act() -> None:
        release, begun = asyncio.Event(), asyncio.Event()

        async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            begun.set()
            await release.wait()
            await send({"type": "http.response.body", "body": b"whole"})

        server = HttpServer(app, host="127.0.0.1", port=0, shutdown_seconds=20.0)
        port = await server.start()
        async with connected(port) as client:
            client.send("GET", "/")
            await begun.wait()
            stopping = asyncio.create_task(server.stop())
            while not server.is_stopping:
                await asyncio.sleep(0)
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", port)
            release.set()
            answer = await client.answer()
            assert (answer.body, answer.complete) == (b"whole", True)
            await stopping
        await server.stop()

    play(act)


def test_stopping_ends_replies_that_take_too_long() -> None:
    async def act() -> None:
        begun = asyncio.Event()

        async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            begun.set()
            await asyncio.Event().wait()

        async with serving(app, shutdown_seconds=0.05) as port:
            client = await asyncio.open_connection("127.0.0.1", port)
            client[1].write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            await begun.wait()
        client[1].close()

    play(act)


def test_a_port_in_use_says_so() -> None:
    async def act() -> None:
        async with serving(echo) as port:
            with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: .*; choose another with --port"):
                await HttpServer(echo, host="127.0.0.1", port=port).start()
            with pytest.raises(ConfigurationError, match="choose another with --host"):
                await HttpServer(echo, host="192.0.2.1", port=0).start()

    play(act)


def test_a_bound_port_accepts_no_client_before_the_start() -> None:
    async def act() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = HttpServer(echo, host="127.0.0.1", port=port)
        server.bind()
        try:
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            assert await server.start() == port
            (await asyncio.open_connection("127.0.0.1", port))[1].close()
        finally:
            await server.stop()

    play(act)


def test_requests_leave_few_reference_cycles() -> None:
    async def act() -> None:
        async with serving(echo) as port, connected(port) as client:
            for rounds in (5, 60):
                gc.collect()
                gc.disable()
                for _ in range(rounds):
                    client.send("POST", "/", b"{}")
                    await client.answer()
                found = gc.collect()
                gc.enable()
            assert found < 60

    play(act)
