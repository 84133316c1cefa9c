"""The proxy with real sockets: what passes untouched, when, what ends what, and the records that come of it."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.scripted_upstream import EVENTS_HEAD, Call, ask, connected
from tests.unit.semgate.proxy.running_proxy import (
    CHAT,
    DONE,
    ROLE,
    TOKEN,
    USAGE,
    Running,
    chat_body,
    event,
    play,
    proxying,
    stream_three_tokens,
)
from tests.waiting import PATIENCE_S, until

from semantic_kv.cli.main import main as semantic_kv
from sembase.errors import ConfigurationError
from semgate.proxy.service import ProxyService
from semgate.settings import ProxySettings


def error_of(body: bytes) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def test_a_stream_passes_byte_for_byte_and_is_recorded(tmp_path: Path) -> None:
    async def act() -> None:
        async with proxying(stream_three_tokens, tmp_path) as running:
            answer = await ask(running.port, "POST", CHAT, chat_body("hello"), (("x-session-id", "s"),))
        assert (answer.status, answer.complete) == (200, True)
        assert answer.body == ROLE + TOKEN * 3 + USAGE + DONE
        assert answer.headers["content-type"] == "text/event-stream"
        (record,) = running.records()
        assert (record["output_tokens"], record["observed_prefix_hit_tokens"]) == (3, 16)
        assert 0 <= record["observed_ttft_ms"] <= record["observed_total_latency_ms"]
        assert record["metadata"]["outcome"] == "ok"

    play(act)


def test_each_chunk_passes_before_the_next_one_is_made(tmp_path: Path) -> None:
    async def act() -> None:
        resume = asyncio.Semaphore(0)

        async def script(call: Call) -> None:
            call.write(EVENTS_HEAD)
            for number in range(5):
                await resume.acquire()
                call.chunk(event({"n": number}))
            call.end()

        async with proxying(script, tmp_path) as running, connected(running.port) as client:
            client.send("POST", CHAT, chat_body("hello"))
            status, _ = await client.head()  # the head does not wait for the first chunk either
            assert status == 200
            for number in range(5):
                resume.release()
                assert await client.chunk() == event({"n": number})
            assert await client.chunk() == b""

    play(act)


def test_the_first_token_is_timed_not_the_role(tmp_path: Path) -> None:
    async def act() -> None:
        role_seen, at = asyncio.Event(), {}

        async def script(call: Call) -> None:
            call.write(EVENTS_HEAD)
            call.chunk(ROLE)
            await role_seen.wait()
            at["token"] = time.perf_counter()
            call.chunk(TOKEN)
            call.chunk(DONE)
            call.end()

        async with proxying(script, tmp_path) as running, connected(running.port) as client:
            began_s = time.perf_counter()
            client.send("POST", CHAT, chat_body("hello"))
            await client.head()
            assert await client.chunk() == ROLE
            await asyncio.sleep(0.15)
            role_seen.set()
            assert (await client.chunk()).startswith(TOKEN)
            seen_s = time.perf_counter()
        (record,) = running.records()
        assert 1000 * 0.15 <= record["observed_ttft_ms"] <= 1000 * (seen_s - began_s)
        assert record["metadata"]["first_byte_ms"] <= record["observed_ttft_ms"] - 140

    play(act)


def test_requests_go_up_untouched_without_what_is_not_theirs(tmp_path: Path) -> None:
    body = b'{ "model" : "m",  "tools": [{"x": "\xc3\xa9"}], "messages":[{"content":[{"type":"image_url"}]}]}'

    async def echo(call: Call) -> None:
        call.reply(call.body)

    async def act() -> None:
        headers = (
            ("authorization", "Bearer secret"),
            ("x-semgate-admin-key", "admin"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("traceparent", "00-1-1-01"),
        )
        for forward in (True, False):
            async with proxying(echo, tmp_path, forward_authorization=forward) as running:
                answer = await ask(running.port, "POST", CHAT + "?a=%20b", body, headers)
                (call,) = running.upstream.calls
            assert answer.body == call.body == body
            assert call.target == CHAT + "?a=%20b"
            assert call.headers.get("authorization") == ("Bearer secret" if forward else None)
            assert call.headers["traceparent"] == "00-1-1-01"
            assert not {"x-semgate-admin-key", "x-hop", "connection"} & set(call.headers)
            assert call.headers["host"] == f"127.0.0.1:{running.upstream.port}"

    play(act)


@pytest.mark.parametrize(
    "status", ["400 Bad Request", "401 Unauthorized", "429 Too Many Requests", "500 Oops", "503 No"]
)
def test_errors_of_the_upstream_pass_as_they_are(tmp_path: Path, status: str) -> None:
    body = b'{"error": {"message": "no such model"}, "odd": true}'

    async def script(call: Call) -> None:
        call.reply(body, status=status, more="retry-after: 7\r\n")

    async def act() -> None:
        async with proxying(script, tmp_path) as running:
            answer = await ask(running.port, "POST", CHAT, chat_body("hello"))
        assert (answer.status, answer.body, answer.headers["retry-after"]) == (int(status[:3]), body, "7")
        (record,) = running.records()
        assert record["metadata"]["outcome"] == "http_error"
        assert "observed_total_latency_ms" not in record

    play(act)


def test_models_pass_and_are_not_recorded(tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        call.reply(b'{"data": []}')

    async def act() -> None:
        async with proxying(script, tmp_path) as running:
            assert (await ask(running.port, "GET", "/v1/models")).body == b'{"data": []}'
            assert (await ask(running.port, "GET", "/v1/models/org%2Fm")).status == 200
            assert (await ask(running.port, "HEAD", "/v1/models")).status == 200
        assert running.records() == []
        assert [call.target for call in running.upstream.calls] == ["/v1/models", "/v1/models/org%2Fm", "/v1/models"]

    play(act)


@pytest.mark.parametrize("path", ["/", "/shutdown", "/v1/../flush_cache", "/v1/models/../../sleep", "//v1/models"])
def test_other_paths_of_an_engine_are_not_reached(tmp_path: Path, path: str) -> None:
    async def act() -> None:
        async with proxying(stream_three_tokens, tmp_path) as running:
            answer = await ask(running.port, "POST", path, b"{}")
            assert (answer.status, error_of(answer.body)["code"]) == (404, "not_found")
            assert running.upstream.calls == []

    play(act)


def test_our_own_refusals_have_the_shape(tmp_path: Path) -> None:
    async def act() -> None:
        async with proxying(stream_three_tokens, tmp_path, max_body_bytes=100) as running:
            answer = await ask(running.port, "POST", CHAT, b"x" * 101)
            assert (answer.status, error_of(answer.body)["code"]) == (413, "request_too_large")
            async with connected(running.port) as client:  # without a length: refused when it is too much
                client.writer.write(
                    b"POST " + CHAT.encode() + b" HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                client.writer.write(b"80\r\n" + b"x" * 128 + b"\r\n")
                answer = await client.answer()
                assert answer.status == 413
            answer = await ask(running.port, "DELETE", "/v1/models")
            assert (answer.status, error_of(answer.body)["code"]) == (405, "method_not_allowed")
            assert running.upstream.calls == []

    play(act)


def test_an_upstream_that_is_away_or_silent(tmp_path: Path) -> None:
    async def silent(call: Call) -> None:
        await call.gone.wait()

    async def torn(call: Call) -> None:
        call.transport.abort()

    async def act() -> None:
        cases = ((silent, 0.1, "upstream_timeout", 504), (torn, PATIENCE_S, "upstream_reset", 502))
        for script, seconds, code, status in cases:
            async with proxying(script, tmp_path / code, proxy_timeout_seconds=seconds) as running:
                answer = await ask(running.port, "POST", CHAT, chat_body("hello"))
            assert (answer.status, error_of(answer.body)["code"]) == (status, code)
            (record,) = running.records()
            assert record["metadata"]["outcome"] == "upstream_fault"
        async with proxying(torn, tmp_path / "away", upstream_base_url="http://127.0.0.1:1") as running:
            answer = await ask(running.port, "POST", CHAT, chat_body("hello"))
            assert (answer.status, error_of(answer.body)["code"]) == (502, "upstream_unreachable")

    play(act)


@pytest.mark.parametrize("border", [True, False])
def test_a_stream_cut_in_the_middle_says_so_and_stays_unfinished(tmp_path: Path, border: bool) -> None:
    async def script(call: Call) -> None:
        call.write(EVENTS_HEAD)
        call.chunk(TOKEN if border else TOKEN[:-5])
        await asyncio.sleep(0.01)
        call.transport.abort()

    async def act() -> None:
        async with proxying(script, tmp_path) as running:
            answer = await ask(running.port, "POST", CHAT, chat_body("hello"))
        assert not answer.complete
        last = answer.body.removesuffix(b"\n\n").rpartition(b"\n\n")[2]
        assert error_of(last.removeprefix(b"data: "))["code"] == "upstream_reset"
        (record,) = running.records()
        assert (record["metadata"]["outcome"], record["metadata"]["fault"]) == ("upstream_fault", "reset")
        assert "observed_ttft_ms" not in record

    play(act)


def test_a_document_cut_in_the_middle_stays_unfinished(tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        call.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        await asyncio.sleep(0.01)
        call.transport.abort()

    async def act() -> None:
        async with proxying(script, tmp_path) as running:
            answer = await ask(running.port, "POST", CHAT, chat_body("hello"))
        assert (answer.body, answer.complete) == (b"{", False)

    play(act)


def test_an_error_inside_a_stream_is_recorded_as_one(tmp_path: Path) -> None:
    async def script(call: Call) -> None:
        call.write(EVENTS_HEAD)
        call.chunk(TOKEN + event({"error": {"message": "out of memory"}}) + DONE)
        call.end()

    async def act() -> None:
        async with proxying(script, tmp_path) as running:
            assert (await ask(running.port, "POST", CHAT, chat_body("hello"))).complete
        assert running.records()[0]["metadata"]["outcome"] == "stream_error"

    play(act)


@pytest.mark.parametrize("phase", ["before the first byte", "in the stream"])
def test_when_the_client_leaves_the_upstream_request_is_cancelled(tmp_path: Path, phase: str) -> None:
    async def act() -> None:
        left, begun = asyncio.Event(), asyncio.Event()

        async def script(call: Call) -> None:
            if phase == "in the stream":
                call.write(EVENTS_HEAD)
                call.chunk(TOKEN)
            begun.set()
            await call.gone.wait()
            left.set()

        async with proxying(script, tmp_path) as running:
            async with connected(running.port) as client:
                client.send("POST", CHAT, chat_body("hello"))
                if phase == "in the stream":
                    await client.head()
                    assert await client.chunk() == TOKEN
                await begun.wait()
            await left.wait()
            while running.service.telemetry.in_flight:
                await asyncio.sleep(0)
        assert running.records()[0]["metadata"]["outcome"] == "client_left"

    play(act)


def test_a_reader_that_lags_holds_the_upstream_and_not_our_memory(tmp_path: Path) -> None:
    async def act() -> None:
        written = 0

        async def script(call: Call) -> None:
            nonlocal written
            call.write(EVENTS_HEAD)
            while written < 64 << 20 and not call.gone.is_set():
                call.chunk(b"x" * 65_536)
                written += 65_536
                while call.transport.get_write_buffer_size() and not call.gone.is_set():
                    await asyncio.sleep(0.001)

        async with proxying(script, tmp_path) as running, connected(running.port) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send("POST", CHAT, chat_body("hello"))
            await until(lambda: written)
            before = -1
            while before != written:  # until nothing moves any more
                before = written
                await asyncio.sleep(0.3)
            assert 0 < written < 32 << 20

    play(act)


def test_one_connection_serves_many_requests_and_many_clients_are_served_at_once(tmp_path: Path) -> None:
    async def act() -> None:
        async with proxying(stream_three_tokens, tmp_path) as running:
            async with connected(running.port) as client:
                for _ in range(5):
                    client.send("POST", CHAT, chat_body("hello"))
                    assert (await client.answer()).complete
            assert running.upstream.connections == 1
            answers = await asyncio.gather(
                *(ask(running.port, "POST", CHAT, chat_body(f"{number}")) for number in range(50))
            )
            assert all(answer.complete for answer in answers)
        assert len(running.records()) == 55

    play(act)


def test_requests_beyond_the_limit_are_asked_to_retry_later(tmp_path: Path) -> None:
    async def act() -> None:
        release = asyncio.Event()

        async def script(call: Call) -> None:
            await release.wait()
            call.reply(b"{}")

        async with proxying(script, tmp_path, max_connections=4) as running:
            running.service.telemetry.in_flight = 3
            first = asyncio.create_task(ask(running.port, "POST", CHAT, chat_body("a")))
            while not running.upstream.calls:
                await asyncio.sleep(0.001)
            refused = await ask(running.port, "POST", CHAT, chat_body("b"))
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            release.set()
            assert (await first).status == 200

    play(act)


def test_health_readiness_and_metrics(tmp_path: Path) -> None:
    async def act() -> None:
        async with proxying(stream_three_tokens, tmp_path) as running:
            await ask(running.port, "POST", CHAT, chat_body("hello"))
            assert (await ask(running.port, "GET", "/healthz")).status == 200
            assert (await ask(running.port, "GET", "/readyz")).status == 200
            assert (await ask(running.port, "GET", "/metrics")).status == 404, "clients could read what others send"
            text = (await ask(running.status_port, "GET", "/metrics")).body.decode()
            assert f'semgate_proxy_requests_total{{outcome="ok",path="{CHAT}",status="200"}} 1.0' in text
            assert "semgate_proxy_ttft_seconds_count 1.0" in text
            running.service.app.is_ready = False
            assert (await ask(running.port, "GET", "/readyz")).status == 503

    play(act)


def test_the_simulator_replays_what_the_proxy_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def talk(running: Running) -> None:
        for session in range(4):
            turns = ["SYSTEM: be brief. " + "word " * 200]
            for turn in range(4):
                turns.append(f"question {turn} " + "more " * 50)
                await ask(running.port, "POST", CHAT, chat_body(*turns), (("x-session-id", f"s{session}"),))

    async def act() -> None:
        async with proxying(stream_three_tokens, tmp_path / "traces") as running:
            await talk(running)
        assert len(running.records()) == 16

    play(act)
    (trace,) = (tmp_path / "traces").glob("trace-*.jsonl")
    arguments = ["replay", "--trace", str(trace), "--cache-token-budget", "2k", "--output-dir", str(tmp_path / "out")]
    arguments += ["--policies", "lru", "--models", "prefix_tree", "--jobs", "1", "--quiet"]
    assert semantic_kv(arguments) == 0, capsys.readouterr().err


def test_a_base_url_may_have_a_path(tmp_path: Path) -> None:
    async def act() -> None:
        async with proxying(stream_three_tokens, tmp_path) as running:
            base = running.upstream.origin + "/models/a/v1/"
            settings = ProxySettings(upstream_base_url=base, trace_output_dir=tmp_path / "b")
            service = ProxyService(settings)
            assert service.app._passing.base_path == "/models/a"
            await service.stop()

    play(act)


def test_without_an_upstream_it_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="SEMANTICKV_UPSTREAM_BASE_URL"):
        ProxyService(ProxySettings(trace_output_dir=tmp_path))
