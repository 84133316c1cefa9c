"""One request of a connection is parsed at a time: what is sent ahead is dropped, and hides no disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from tests.fakes.scripted_upstream import connected
from tests.unit.semgate.http.test_http_server import echo, error_of, play, serving
from tests.waiting import until

from sembase.http.server import HttpServer
from sembase.http.server_protocol import MAX_HEADERS
from semgate.http.departure import ClientWatch
from semgate.http.faults import Send, send_json
from semgate.http.request_body import ClientGone, Receive, read_body

SMALL = b"GET /ahead HTTP/1.1\r\nhost:\r\n\r\n"
MANY = SMALL * (250_000 // len(SMALL))
FIRST = b"POST /first HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"


class Noting:
    """Answers at once, and notes the paths it was asked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        await read_body(receive, tuple(scope["headers"]))
        await send_json(send, 200, b"{}")


@pytest.mark.parametrize("ahead", [SMALL, MANY, b"GET /ahead HT", b"\xff\xfe"])
def test_what_comes_with_a_request_is_dropped_and_its_answer_closes_the_connection(ahead: bytes) -> None:
    app = Noting()

    async def act() -> None:
        async with serving(app) as port, connected(port) as client:
            client.writer.write(FIRST + ahead)
            answer = await client.answer()
            assert answer.status == 200
            try:
                assert await client.reader.read() == b""
            except ConnectionResetError:  # what it had sent ahead was not read to the end
                assert ahead is MANY

    play(act)
    assert app.paths == ["/first"]


def test_empty_lines_after_a_request_are_no_request() -> None:
    app = Noting()

    async def act() -> None:
        async with serving(app) as port, connected(port) as client:
            for _ in range(2):
                client.writer.write(FIRST + b"\r\n")
                answer = await client.answer()
                assert (answer.status, "connection" in answer.headers) == (200, False)

    play(act)
    assert app.paths == ["/first"] * 2


@pytest.mark.parametrize("ahead", [b"", SMALL, MANY])
def test_a_request_sent_ahead_does_not_hide_that_the_client_left(ahead: bytes) -> None:
    streaming, left = asyncio.Event(), asyncio.Event()

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        assert scope["path"] == "/first"
        await read_body(receive, tuple(scope["headers"]))
        try:
            with ClientWatch(receive):
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"a", "more_body": True})
                streaming.set()
                await asyncio.Event().wait()
        except ClientGone:
            left.set()

    async def act() -> None:
        server = HttpServer(app, host="127.0.0.1", port=0)
        async with connected(await server.start()) as client:
            client.writer.write(FIRST)
            await streaming.wait()
            client.writer.write(ahead)
            await client.writer.drain()
            await client.close()
            await left.wait()
        await server.stop()

    play(act)


def test_a_request_sent_once_the_whole_answer_is_here_is_served() -> None:
    """The client has seen its length; the app has not ended the answer yet."""
    paths: list[str] = []
    server: HttpServer

    async def app(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        paths.append(scope["path"])
        await read_body(receive, tuple(scope["headers"]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}", "more_body": True})
        if len(paths) == 1:
            (connection,) = server._state.connections
            await until(lambda: connection.flow.read_paused)  # type: ignore[union-attr]
        await send({"type": "http.response.body", "body": b""})

    async def act() -> None:
        nonlocal server
        server = HttpServer(app, host="127.0.0.1", port=0)
        async with connected(await server.start()) as client:
            for path in ("/one", "/two", "/three"):
                client.send("POST", path, b"x" * 300_000 if path == "/two" else b"x")
                assert (await client.answer()).body == b"{}"
        await server.stop()

    play(act)
    assert paths == ["/one", "/two", "/three"]


def _with_headers(count: int, line: bytes = b"a: b\r\n") -> bytes:
    return b"GET / HTTP/1.1\r\nhost: a\r\n" + line * (count - 1) + b"\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (_with_headers(MAX_HEADERS), 200),
        (_with_headers(MAX_HEADERS + 1), 431),
        (_with_headers(64_000, b"a:\r\n"), 431),
        (_with_headers(2, b"a: " + b"b" * 70_000 + b"\r\n"), 431),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n", 431),
    ],
)
def test_headers_are_limited_in_number_and_size(head: bytes, status: int) -> None:
    async def act() -> None:
        async with serving(echo) as port, connected(port) as client:
            client.writer.write(head)
            answer = await client.answer()
            assert answer.status == status
            if status == 431:
                assert error_of(answer.body)["code"] == "head_too_large"

    play(act)


def test_trailers_count_as_headers() -> None:
    head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"

    async def act() -> None:
        async with serving(echo) as port, connected(port) as client:
            client.writer.write(head + b"a: b\r\n" * MAX_HEADERS + b"\r\n")
            assert (await client.answer()).status == 431

    play(act)
