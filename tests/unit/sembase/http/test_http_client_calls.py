"""Whole calls of the client: bodies with the times they were read, one request for a command, URLs, errors to read."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fakes.scripted_upstream import EVENTS_HEAD, Call, Script, ScriptedUpstream, scripted
from tests.unit.sembase.http.test_http_client import answer_json, play
from tests.waiting import PATIENCE_S

from sembase.errors import ConfigurationError
from sembase.http.client import HttpClient, HttpFault, describe_fault, fetch_once, split_url


def test_a_body_is_handed_over_with_the_times_it_was_read_at() -> None:
    proceed = asyncio.Semaphore(0)
    seen: list[tuple[bytes, float]] = []

    async def script(call: Call) -> None:
        call.write(EVENTS_HEAD)
        for number in range(3):
            call.chunk(b"%d" % number)
            await proceed.acquire()
        call.end()

    def on_body(piece: bytes, read_at: float) -> None:
        seen.append((piece, read_at))
        proceed.release()

    async def act(client: HttpClient, server: ScriptedUpstream) -> None:
        before = time.perf_counter()
        reply = await client.send(server.origin, "POST", "/v1/completions", (), b"{}", on_body=on_body)
        assert [chunk async for chunk in reply] == []
        times = [before, reply.sent_at, *(at for _, at in seen), reply.read_at, time.perf_counter()]
        assert times == sorted(times)
        assert reply.is_complete

    play(script, act)
    assert [piece for piece, _ in seen] == [b"0", b"1", b"2"]


def test_the_body_of_an_error_is_not_taken_for_an_answer() -> None:
    async def script(call: Call) -> None:
        call.reply(b"no such model", status="404 Not Found")

    async def act(client: HttpClient, server: ScriptedUpstream) -> None:
        seen: list[bytes] = []
        reply = await client.send(server.origin, "POST", "/", (), b"", on_body=lambda piece, _: seen.append(piece))
        assert (reply.status, await reply.read(100), seen) == (404, b"no such model", [])

    play(script, act)


def test_a_torn_body_ends_in_its_fault_after_what_came() -> None:
    async def script(call: Call) -> None:
        call.write(EVENTS_HEAD)
        call.chunk(b"a")
        call.transport.close()

    async def act(client: HttpClient, server: ScriptedUpstream) -> None:
        seen: list[bytes] = []
        reply = await client.send(server.origin, "POST", "/", (), b"", on_body=lambda piece, _: seen.append(piece))
        with pytest.raises(HttpFault, match="reset"):
            await reply.read(100)
        assert seen == [b"a"]

    play(script, act)


def test_a_body_is_read_up_to_its_limit_and_a_longer_one_costs_the_connection() -> None:
    async def script(call: Call) -> None:
        call.reply(b"0123456789")

    async def act(client: HttpClient, server: ScriptedUpstream) -> None:
        url = f"{server.origin}/v1/models?limit=1"
        assert await client.fetch("GET", url, max_bytes=10) == (200, b"0123456789")
        assert await client.fetch("GET", url, max_bytes=4) == (200, b"0123")

    assert [call.target for call in play(script, act).calls] == ["/v1/models?limit=1"] * 2


@contextmanager
def serving(script: Script) -> Iterator[ScriptedUpstream]:
    """A scripted server on a loop and a thread of its own, for calls that have their own loop."""
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    servers: list[ScriptedUpstream] = []

    async def serve() -> None:
        async with scripted(script) as server:
            servers.append(server)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield servers[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_a_command_asks_once_with_headers_and_body() -> None:
    with serving(answer_json) as server:
        headers = ((b"authorization", b"Bearer secret"),)
        url = f"{server.origin}/v1/completions"
        assert fetch_once("POST", url, headers=headers, body=b"{}", timeout_s=PATIENCE_S) == (200, b'{"data": []}')
    call = server.calls[0]
    assert (call.method, call.body, call.headers["authorization"]) == ("POST", b"{}", "Bearer secret")


def test_a_command_waits_no_longer_than_it_says() -> None:
    async def script(call: Call) -> None:
        await call.gone.wait()

    with serving(script) as server, pytest.raises(HttpFault, match=r"timeout: no .* within 0.2 s|no first byte"):
        fetch_once("GET", server.origin, timeout_s=0.2)


def test_a_refusal_is_described_in_the_systems_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(HttpFault) as caught:
            fetch_once("GET", f"http://127.0.0.1:{taken.getsockname()[1]}", timeout_s=5)
    assert "Connect call failed" in describe_fault(caught.value)


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    wrong = tmp_path / "ca.pem"
    wrong.write_text("not a certificate")
    with pytest.raises(ConfigurationError, match=r"ca\.pem: cannot be read as certificates"):
        fetch_once("GET", "https://127.0.0.1:1", timeout_s=1, ca_file=wrong)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://host", ("http://host", "/")),
        ("https://host:8443/v1/models?a=b", ("https://host:8443", "/v1/models?a=b")),
        ("http://[::1]:80/", ("http://[::1]:80", "/")),
    ],
)
def test_urls_are_split_into_origin_and_target(url: str, parts: tuple[str, str]) -> None:
    assert split_url(url) == parts


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://host", "http://", "", "http://host:none", "http://host:99999"]
)
def test_anything_else_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"invalid server URL .*expected http://host:port"):
        split_url(url)


def test_the_client_can_be_imported_without_httptools_and_names_the_extra_when_it_is_made() -> None:
    script = """
import sys
sys.modules["httptools"] = None
from sembase.errors import MissingDependencyError
from sembase.http.client import fetch_once
try:
    fetch_once("GET", "http://x", timeout_s=1)
except MissingDependencyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'kvmend[live]'" in done.stdout
