"""Whatever a client or an upstream sends, the proxy answers in HTTP, in our shape, without a stack trace, and lives."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.scripted_upstream import Answer, Call, ask, connected
from tests.unit.semgate.proxy.running_proxy import CHAT, Running, proxying, stream_three_tokens
from tests.waiting import PATIENCE_S

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=15,
)
FIELDS = ("model", "messages", "prompt", "stream", "tools", "user", "n", "cache_salt", "lora_path", "stream_options")
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["system", "user", "assistant", "tool", "\ud800"]) | JSON,
        "content": st.text() | st.lists(st.fixed_dictionaries({"type": st.text(max_size=9), "text": JSON})) | JSON,
        "tool_calls": JSON,
    },
)
BODIES = (
    st.binary(max_size=300)
    | st.dictionaries(st.sampled_from(FIELDS), JSON).map(lambda body: json.dumps(body).encode())
    | st.lists(MESSAGE, max_size=4).map(lambda messages: json.dumps({"messages": messages}).encode())
)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30)
TRACES = (b"Traceback", b'File "', b".py")


@contextmanager
def one_proxy(script: Any, folder: Path) -> Iterator[tuple[asyncio.Runner, Running]]:
    with asyncio.Runner() as runner:
        opened = proxying(script, folder, proxy_timeout_seconds=PATIENCE_S)
        running = runner.run(opened.__aenter__())
        try:
            yield runner, running
        finally:
            runner.run(opened.__aexit__(None, None, None))


async def bounded(asking: Any) -> Answer:
    async with asyncio.timeout(PATIENCE_S):
        answer: Answer = await asking
        return answer


def test_any_body_and_headers_pass(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with one_proxy(stream_three_tokens, tmp_path) as (runner, running):

        @settings(max_examples=60)
        @given(BODIES, VALUES, VALUES, st.sampled_from((CHAT, "/v1/completions", "/generate")))
        def fuzz(body: bytes, session: str, tenant: str, path: str) -> None:
            headers = (("x-session-id", session), ("x-tenant-id", tenant), ("authorization", tenant))
            answer = runner.run(bounded(ask(running.port, "POST", path, body, headers)))
            assert (answer.status, answer.complete) == (200, True)
            assert running.upstream.calls.pop().body == body

        with caplog.at_level(logging.DEBUG):
            fuzz()
        runner.run(asyncio.to_thread(running.service.writer.close))
        counts = running.service.writer.counts
        assert counts.dropped_error == 0
        assert counts.written + counts.skipped >= 40
    assert "Traceback" not in caplog.text
    for record in running.records():
        assert record["blocks"]


def test_any_bytes_as_a_request_are_answered_or_the_connection_ends(tmp_path: Path) -> None:
    async def throw(port: int, data: bytes) -> bytes:
        async with asyncio.timeout(PATIENCE_S), connected(port) as client:
            client.writer.write(data + b"\r\n\r\n")
            client.writer.write_eof()
            try:
                return await client.reader.read()
            except ConnectionError:
                return b""

    with one_proxy(stream_three_tokens, tmp_path) as (runner, running):
        lines = st.sampled_from((b"POST /v1/completions HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\n", b""))

        @settings(max_examples=50)
        @given(lines, st.binary(max_size=200))
        def fuzz(line: bytes, data: bytes) -> None:
            got = runner.run(throw(running.port, line + data))
            assert got == b"" or got.startswith(b"HTTP/1.1 ")
            assert not any(trace in got for trace in TRACES)

        fuzz()
        assert runner.run(bounded(ask(running.port, "GET", "/healthz"))).status == 200


def test_any_path_is_answered(tmp_path: Path) -> None:
    with one_proxy(stream_three_tokens, tmp_path) as (runner, running):

        @settings(max_examples=50)
        @given(
            st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40), st.sampled_from(("GET", "POST"))
        )
        def fuzz(path: str, method: str) -> None:
            answer = runner.run(bounded(ask(running.port, method, "/" + path)))
            assert answer.status in (200, 400, 404)
            if answer.status in (400, 404):
                assert json.loads(answer.body)["error"]["code"] in ("not_found", "bad_request")

        fuzz()
        assert all(call.target.startswith(("/v1/", "/generate", "/tokenize")) for call in running.upstream.calls)


def test_any_reply_of_an_upstream_becomes_http_again(tmp_path: Path) -> None:
    replies: list[bytes] = []

    async def script(call: Call) -> None:
        call.write(replies[-1])
        call.transport.close()

    heads = (
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 500 X\r\ncontent-length: 20\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
    )
    with one_proxy(script, tmp_path) as (runner, running):

        @settings(max_examples=60)
        @given(st.sampled_from(heads), st.binary(max_size=120) | st.just(b'data: {"choices": [{"delta": 5}]}\n\n'))
        def fuzz(head: bytes, rest: bytes) -> None:
            replies.append(head + rest)
            answer = runner.run(bounded(ask(running.port, "POST", CHAT, b'{"messages": []}')))
            assert 100 < answer.status < 1000
            if answer.status == 502:
                assert json.loads(answer.body)["error"]["code"].startswith("upstream_")
            assert not any(trace in answer.body for trace in TRACES if trace not in rest)

        fuzz()
        assert runner.run(bounded(ask(running.port, "GET", "/healthz"))).status == 200
