"""What the streaming client must not mix up: whose fault it is, whose header it is, what may be sent twice."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest
from tests.fakes.scripted_upstream import Call, ScriptedUpstream
from tests.unit.sembase.http.test_http_client import answer_json, body_of, get, play

from sembase.http.client import HttpClient, HttpFault
from semgate.http.faults import fault_of


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL])
def test_what_this_machine_lacks_is_no_fault_of_the_upstream(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        async def fails(*_: Any, **__: Any) -> Any:
            raise OSError(number, "none left")

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
        with pytest.raises(HttpFault) as caught:
            await get(upstream, server)
        fault = caught.value
        assert (fault.kind, fault.sent, fault.refused) == ("no_connection", False, False)
        assert (fault_of(fault).status, fault_of(fault).retry_after_s) == (503, 1)

    play(answer_json, act)


def test_only_a_refusal_says_that_nothing_listens() -> None:
    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        with socket.socket() as taken:  # bound and not listening: the system refuses
            taken.bind(("127.0.0.1", 0))
            for host in ("127.0.0.1", "localhost"):
                with pytest.raises(HttpFault) as caught:
                    await upstream.send(f"http://{host}:{taken.getsockname()[1]}", "GET", "/", (), b"")
                assert (caught.value.kind, caught.value.refused) == ("connect", True)

    play(answer_json, act)


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (OSError("Multiple exceptions: [Errno 111] a, [Errno 111] b"), True),
        (OSError("Multiple exceptions: [Errno 111] a, [Errno 113] b"), False),
        (socket.gaierror(socket.EAI_NONAME, "no such name"), False),
        (OSError(errno.EHOSTUNREACH, "no way"), False),
        (TimeoutError(), False),
    ],
)
def test_other_faults_of_connecting_are_no_refusal(
    error: OSError, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        async def fails(*_: Any, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
        with pytest.raises(HttpFault) as caught:
            await get(upstream, server)
        assert (caught.value.kind, caught.value.refused) == ("connect", refused)

    play(answer_json, act)


@pytest.mark.parametrize("trailers", [b"x-one: 1\r\n", b"set-cookie: sid=1\r\nx-one: 1\r\n"])
def test_a_trailer_is_no_header_of_the_next_reply(trailers: bytes) -> None:
    async def script(call: Call) -> None:
        if call.target == "/first":
            head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
            call.write(head + b"2\r\nhi\r\n0\r\n" + trailers + b"\r\n")
        else:
            call.reply(b"hi")

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        first = await get(upstream, server, "/first")
        assert await body_of(first) == b"hi"
        second = await get(upstream, server, "/second")
        assert await body_of(second) == b"hi"
        for reply in (first, second):
            assert not {b"x-one", b"set-cookie"} & {name for name, _ in reply.headers}

    assert play(script, act).connections == 1


def test_endless_trailers_are_a_fault() -> None:
    async def script(call: Call) -> None:
        call.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 40_000)

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        with pytest.raises(HttpFault) as caught:
            await body_of(await get(upstream, server))
        assert caught.value.kind == "protocol"

    play(script, act)


@pytest.mark.parametrize(
    ("method", "path", "times"),
    [("POST", "/v1/responses", 1), ("POST", "/base/v1/%72esponses?x=1", 1), ("POST", "/v1/completions", 2)],
)
def test_what_stores_something_is_never_sent_twice(method: str, path: str, times: int) -> None:
    async def script(call: Call) -> None:
        if call.target == path and call.connection == 1:
            call.transport.abort()
        else:
            call.reply(b"{}")

    async def act(upstream: HttpClient, server: ScriptedUpstream) -> None:
        await body_of(await get(upstream, server))
        if times == 1:
            with pytest.raises(HttpFault) as caught:
                await upstream.send(server.origin, method, path, (), b"{}")
            assert (caught.value.kind, caught.value.sent) == ("reset", True)
        else:
            await body_of(await upstream.send(server.origin, method, path, (), b"{}"))
        assert await body_of(await get(upstream, server)) == b"{}"

    assert [call.target for call in play(script, act).calls].count(path) == times
