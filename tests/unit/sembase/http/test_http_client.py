"""The streaming client against a scripted server on loopback: pass-through, reuse, limits, time limits, departures."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.clock import LONG_S, MovableClock, run_with_clock
from tests.fakes.scripted_upstream import EVENTS_HEAD, Call, Script, ScriptedUpstream, scripted
from tests.waiting import PATIENCE_S, until

from sembase.http.client import HttpClient, HttpFault, StreamedReply
from sembase.http.reply import PAUSE_BYTES


def client(**changed: Any) -> HttpClient:
    limits = {
        "connect_seconds": PATIENCE_S,
        "first_byte_seconds": PATIENCE_S,
        "idle_seconds": PATIENCE_S,
        "max_connections_per_origin": 64,
    }
    return HttpClient(**(limits | changed))


def play(
    script: Script, act: Callable[[HttpClient, ScriptedUpstream], Coroutine[Any, Any, None]], **limits: Any
) -> ScriptedUpstream:
    async def run() -> ScriptedUpstream:
        async with asyncio.timeout(PATIENCE_S), scripted(script) as server:
            upstream = client(**limits)
            try:
                await act(upstream, server)
            finally:
                await upstream.close()
            return server

    return asyncio.run(run())


async def get(upstream: HttpClient, server: ScriptedUpstream, path: str = "/v1/models") -> StreamedReply:
    return await upstream.send(server.origin, "GET", path, (), b"")


async def body_of(reply: StreamedReply) -> bytes:
    return b"".join([chunk async for chunk in reply.chunks()])


async def answer_json(call: Call) -> None:
    call.reply(b'{"data": []}')


def test_a_request_arrives_as_it_was_sent_and_the_reply_as_it_came() -> None:
    headers = ((b"x-own", b"1"), (b"content-type", b"application/json"))
    body = json.dumps({"tools": [{"a": "\u00e9"}]}).encode()

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        reply = await upstream.send(server.origin, "POST", "/v1/x?a=%20b", headers, body)
        assert (reply.status, await body_of(reply)) == (200, b'{"data": []}')
        assert (b"content-type", b"application/json") in reply.headers

    call = play(answer_json, act).calls[0]
    assert (call.method, call.target, call.body) == ("POST", "/v1/x?a=%20b", body)
    assert call.headers["x-own"] == "1"
    assert call.headers["content-length"] == str(len(body))


def test_large_bodies_and_replies_are_whole() -> None:
    large = bytes(range(256)) * 20_000  # 5 MB

    async def echo(call: Call) -> None:
        call.reply(call.body, kind="application/octet-stream")

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        reply = await upstream.send(server.origin, "POST", "/", (), large)
        assert await body_of(reply) == large

    play(echo, act)


def test_each_chunk_is_here_before_the_next_one_is_sent() -> None:
    resume = asyncio.Semaphore(0)

    async def script(call: Call) -> None:
        call.write(EVENTS_HEAD)
        for number in range(5):
            await resume.acquire()
            call.chunk(b"data: %d\n\n" % number)
        call.end()

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        reply = await get(upstream, server)
        chunks = reply.chunks()
        for number in range(5):
            resume.release()
            assert await anext(chunks) == b"data: %d\n\n" % number
        assert await anext(chunks, None) is None
        assert reply.is_complete

    play(script, act)


def test_a_finished_connection_is_used_again_and_the_newest_first() -> None:
    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        for _ in range(20):
            await body_of(await get(upstream, server))

    server = play(answer_json, act)
    assert (len(server.calls), server.connections) == (20, 1)


def test_a_connection_is_not_used_again_where_the_server_says_close() -> None:
    async def script(call: Call) -> None:
        call.reply(b"{}", more="connection: close\r\n")

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        for _ in range(3):
            await body_of(await get(upstream, server))

    assert play(script, act).connections == 3


def test_a_kept_connection_that_died_costs_nothing_but_a_new_one() -> None:
    async def script(call: Call) -> None:
        if len(server_calls) and call.connection == 1:
            call.transport.abort()
            return
        server_calls.append(call)
        call.reply(b"{}")

    server_calls: list[Call] = []

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        await body_of(await get(upstream, server))
        assert await body_of(await get(upstream, server)) == b"{}"

    assert play(script, act).connections == 2


def test_a_new_connection_that_dies_is_a_fault_and_not_asked_twice() -> None:
    async def script(call: Call) -> None:
        call.transport.abort()

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        with pytest.raises(HttpFault) as caught:
            await get(upstream, server)
        assert (caught.value.kind, caught.value.sent) == ("reset", True)

    assert len(play(script, act).calls) == 1


def test_a_kept_connection_that_dies_after_a_byte_is_not_asked_twice() -> None:
    async def script(call: Call) -> None:
        if server_calls:
            call.write(b"HTTP/1.1 2")
            call.transport.close()
            return
        server_calls.append(call)
        call.reply(b"{}")

    server_calls: list[Call] = []

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        await body_of(await get(upstream, server))
        with pytest.raises(HttpFault):
            await get(upstream, server)

    assert len(play(script, act).calls) == 2


def test_no_more_connections_than_allowed_and_no_request_is_lost() -> None:
    most = 0

    async def script(call: Call) -> None:
        nonlocal most
        most = max(most, len(server_of[0].open))
        await asyncio.sleep(0)
        call.reply(b"{}")

    server_of: list[ScriptedUpstream] = []

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        server_of.append(server)

        async def one() -> bytes:
            return await body_of(await get(upstream, server))

        assert await asyncio.gather(*(one() for _ in range(50))) == [b"{}"] * 50

    play(script, act, max_connections_per_origin=4)
    assert most <= 4


def test_waiting_for_a_connection_ends_with_the_connect_time_limit() -> None:
    async def script(call: Call) -> None:
        await call.gone.wait()

    async def act(clock: MovableClock) -> None:
        async with scripted(script) as server:
            upstream = client(max_connections_per_origin=1, connect_seconds=LONG_S, first_byte_seconds=10 * LONG_S)
            first = asyncio.create_task(get(upstream, server))
            await until(lambda: server.calls)
            second = asyncio.create_task(get(upstream, server))
            await clock.skip(0.0)  # it begins to wait
            await clock.skip(0.9 * LONG_S)
            assert not second.done()
            await clock.skip(0.2 * LONG_S)
            with pytest.raises(HttpFault) as caught:
                await second
            assert (caught.value.kind, caught.value.sent) == ("no_connection", False)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            await upstream.close()

    run_with_clock(act)


def test_a_connection_given_to_a_cancelled_request_goes_to_the_next() -> None:
    release = asyncio.Event()

    async def script(call: Call) -> None:
        await release.wait()
        call.reply(b"{}")

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        tasks = [asyncio.create_task(get(upstream, server)) for _ in range(3)]
        while not server.calls:
            await asyncio.sleep(0.001)
        tasks[1].cancel()
        release.set()
        await body_of(await tasks[0])
        assert await body_of(await tasks[2]) == b"{}"
        await asyncio.gather(tasks[1], return_exceptions=True)

    play(script, act, max_connections_per_origin=1)


def test_nothing_listens() -> None:
    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        with pytest.raises(HttpFault) as caught:
            await upstream.send("http://127.0.0.1:1", "GET", "/", (), b"")
        assert (caught.value.kind, caught.value.sent) == ("connect", False)

    play(answer_json, act)


@pytest.mark.parametrize("head_first", [False, True])
def test_no_first_byte_in_time(head_first: bool) -> None:
    async def script(call: Call) -> None:
        if head_first:  # engines send their head before they compute: it is no answer yet
            call.write(EVENTS_HEAD)
        await call.gone.wait()
        left.set()

    left = asyncio.Event()

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        with pytest.raises(HttpFault) as caught:
            await body_of(await get(upstream, server))
        assert caught.value.kind == "timeout"
        await left.wait()

    play(script, act, first_byte_seconds=0.05)


def test_a_stream_that_stops_is_ended_after_the_idle_time() -> None:
    async def act(clock: MovableClock) -> None:
        left = asyncio.Event()

        async def script(call: Call) -> None:
            call.write(EVENTS_HEAD)
            call.chunk(b"data: 1\n\n")
            await call.gone.wait()
            left.set()

        async with scripted(script) as server:
            upstream = client(idle_seconds=LONG_S)
            chunks = (await get(upstream, server)).chunks()
            assert await anext(chunks) == b"data: 1\n\n"
            silent = asyncio.ensure_future(anext(chunks))
            await clock.skip(0.0)  # it begins to wait
            await clock.skip(0.9 * LONG_S)
            assert not silent.done()
            await clock.skip(0.2 * LONG_S)
            with pytest.raises(HttpFault, match="timeout"):
                await silent
            await left.wait()
            await upstream.close()

    run_with_clock(act)


def test_a_slow_stream_is_not_idle() -> None:
    """Each chunk comes within the idle time, all of them together take several times as long."""

    async def act(clock: MovableClock) -> None:
        more: asyncio.Queue[None] = asyncio.Queue()

        async def script(call: Call) -> None:
            call.write(EVENTS_HEAD)
            for _ in range(6):
                await more.get()
                call.chunk(b"x")
            await more.get()
            call.end()

        async with scripted(script) as server:
            upstream = client(idle_seconds=LONG_S)
            chunks = (await get(upstream, server)).chunks()
            for _ in range(6):
                more.put_nowait(None)
                assert await anext(chunks) == b"x"
                await clock.skip(0.7 * LONG_S)
            more.put_nowait(None)
            assert [chunk async for chunk in chunks] == []
            await upstream.close()

    run_with_clock(act)


@pytest.mark.parametrize("when", ["before the head", "in the stream"])
def test_a_cancelled_request_closes_its_connection(when: str) -> None:
    async def script(call: Call) -> None:
        if when == "in the stream":
            call.write(EVENTS_HEAD)
            call.chunk(b"x")
        await call.gone.wait()
        left.set()

    left = asyncio.Event()

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        async def whole() -> None:
            reply = await get(upstream, server)
            try:
                await body_of(reply)
            finally:
                await reply.abort()
                await reply.abort()

        task = asyncio.create_task(whole())
        while not server.calls:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        task.cancel()
        await left.wait()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(script, act)


def test_abort_after_the_end_keeps_the_connection() -> None:
    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        for _ in range(3):
            reply = await get(upstream, server)
            await body_of(reply)
            await reply.abort()

    assert play(answer_json, act).connections == 1


def test_a_slow_reader_makes_the_server_wait() -> None:
    piece = b"x" * 65_536

    async def script(call: Call) -> None:
        call.write(EVENTS_HEAD)
        for _ in range(400):  # 25 MB
            call.chunk(piece)
            while call.transport.get_write_buffer_size() and not call.gone.is_set():
                await asyncio.sleep(0)
        call.end()

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        reply = await get(upstream, server)
        held: Any = reply
        chunks = reply.chunks()
        total = len(await anext(chunks))
        await asyncio.sleep(0.2)  # nothing is read; what the client holds must not grow with the stream
        assert held._held_bytes <= PAUSE_BYTES + 1_048_576
        async for chunk in chunks:
            assert held._held_bytes <= PAUSE_BYTES + 1_048_576
            total += len(chunk)
        assert total == 400 * len(piece)

    play(script, act)


def test_a_reply_without_a_length_ends_with_its_connection() -> None:
    async def script(call: Call) -> None:
        call.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nabc")
        await asyncio.sleep(0.01)
        call.write(b"def")
        call.transport.close()

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        assert await body_of(await get(upstream, server)) == b"abcdef"

    play(script, act)


@pytest.mark.parametrize(
    "torn",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ],
)
def test_a_torn_reply_gives_what_came_and_then_the_fault(torn: bytes) -> None:
    async def script(call: Call) -> None:
        call.write(torn)
        call.transport.close()

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        chunks = (await get(upstream, server)).chunks()
        assert await anext(chunks) == b"abc"
        with pytest.raises(HttpFault) as caught:
            await anext(chunks)
        assert (caught.value.kind, caught.value.sent) == ("reset", True)

    play(script, act)


@pytest.mark.parametrize(
    "garbage",
    [
        b"SMTP hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    ],
)
def test_what_is_no_http_is_a_protocol_fault(garbage: bytes) -> None:
    async def script(call: Call) -> None:
        call.write(garbage)

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        with pytest.raises(HttpFault) as caught:
            await body_of(await get(upstream, server))
        assert caught.value.kind == "protocol"

    play(script, act)


def test_what_comes_before_the_reply_is_passed_over() -> None:
    async def script(call: Call) -> None:
        call.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
        call.reply(b"{}")

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        reply = await get(upstream, server)
        assert (reply.status, await body_of(reply)) == (200, b"{}")

    play(script, act)


def test_replies_without_a_body() -> None:
    async def script(call: Call) -> None:
        status = "204 No Content" if call.target == "/204" else "200 OK"
        length = "" if call.target == "/204" else "content-length: 7\r\n"
        call.write(f"HTTP/1.1 {status}\r\n{length}\r\n".encode())

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        for method, path, status in (("HEAD", "/", 200), ("GET", "/204", 204), ("GET", "/204", 204)):
            reply = await upstream.send(server.origin, method, path, (), b"")
            assert (reply.status, await body_of(reply)) == (status, b"")

    assert play(script, act).connections == 2


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("forged", [b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged", b"HTTP/1.1 200 OK\r\nx: "])
def test_bytes_without_a_request_end_the_connection(forged: bytes, later: bool) -> None:
    was_read = asyncio.Event()

    async def script(call: Call) -> None:
        if call.connection > 1:
            call.reply(b"{}")
        elif later:
            call.reply(b"{}")
            await was_read.wait()
            call.write(forged)
        else:
            call.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" + forged)

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        assert await body_of(await get(upstream, server)) == b"{}"
        was_read.set()
        while server.open:
            await asyncio.sleep(0.001)
        assert await body_of(await get(upstream, server)) == b"{}"

    assert play(script, act).connections == 2


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/ HTTP/1.1\r\nx: 1", ()), ("/a b", ()), ("/", ((b"x", b"1\r\nforged: 1"),)), ("/", ((b"x\n", b"1"),))],
)
def test_a_request_cannot_smuggle_a_line(path: str, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        with pytest.raises(HttpFault) as caught:
            await upstream.send(server.origin, "GET", path, headers, b"")
        assert (caught.value.kind, caught.value.sent) == ("protocol", False)

    assert play(answer_json, act).calls == []


def test_requests_leave_no_reference_cycles() -> None:
    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        await body_of(await get(upstream, server))
        gc.collect()
        gc.disable()
        try:
            for _ in range(200):
                await body_of(await get(upstream, server))
            server.calls.clear()
            assert gc.collect() < 200
        finally:
            gc.enable()

    play(answer_json, act)
