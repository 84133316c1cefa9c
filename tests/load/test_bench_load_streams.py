"""A thousand concurrent streams from one process, on loopback; and what our client adds to a TTFT, beside bare sockets.

The stand-in server writes its own clock into every first token: how late our time stamp is, is measured, not guessed.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.fakes.openai_server import running

from sembase.http.reply import Headers, OnBody
from sembench.cli.main import main
from sembench.http.client import LiveClient, LiveRequest
from sembench.http.request import encode_body

STREAMS = 1000
TTFT_MS, ITL_MS, TOKENS = 500.0, 500.0, 25
RAMP_UP_S = 2.0
SENT_AT = re.compile(rb'"sent_at": ?([0-9.]+)')
pytestmark = pytest.mark.load


def late_ms(data: bytes, now: float) -> list[float]:
    return [1000.0 * (now - float(found)) for found in SENT_AT.findall(data)]


def test_a_thousand_streams_are_held_without_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "load.json"
    # No stream ends before all are open, however long that takes; a client that opened fewer would never finish.
    with running(ttft_ms=TTFT_MS, itl_ms=ITL_MS, tokens=TOKENS, hold=STREAMS) as url:
        load = ["--concurrency", str(STREAMS), "--ramp-up-seconds", str(RAMP_UP_S), "--requests", str(STREAMS)]
        prompts = ["--prompt-tokens", "50", "--max-tokens", str(TOKENS)]
        started = time.monotonic()
        code = main(["run-load", "--base-url", url, "--output", str(output), *load, *prompts])
        seconds = time.monotonic() - started
        peak = asyncio.run(_peak_streams(url))
    result = json.loads(output.read_text(encoding="utf-8"))
    with capsys.disabled():
        print(f"\n{STREAMS} streams in {seconds:.1f} s, at once on the server: {peak}")
        print(capsys.readouterr().out)
    assert code == 0
    assert result["requests"]["by_status"] == {"ok": STREAMS}
    assert result["throughput"]["peak_in_flight"] == STREAMS
    assert peak == STREAMS  # as the server counts: really open at the same time, not queued in the client
    assert result["latency_ms"]["itl"]["n"] == STREAMS * (TOKENS - 1)
    assert result["client"]["event_loop_lag_ms"]["n"] > 0


async def _peak_streams(url: str) -> int:
    async with LiveClient(url, timeout_s=600, max_connections=1) as client:
        return int(json.loads((await client.get("/seen"))[1])["peak_streams"])


def test_what_the_client_adds_to_a_ttft_beside_bare_sockets(capsys: pytest.CaptureFixture[str]) -> None:
    with running(ttft_ms=TTFT_MS, itl_ms=ITL_MS, tokens=TOKENS) as url:
        bare, bare_cpu_ms = _measured(_by_bare_sockets(url))
        ours, ours_cpu_ms = _measured(_by_client(url))
    busy = os.getloadavg()[0]
    with capsys.disabled():
        print(f"\nfrom the server's clock to ours, {STREAMS} streams, load average {busy:.1f}")
        for name, lates, cpu_ms in (("bare sockets", bare, bare_cpu_ms), ("our client", ours, ours_cpu_ms)):
            p50, p99 = lates[STREAMS // 2], lates[STREAMS * 99 // 100]
            print(f"{name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms; CPU {cpu_ms:.2f} ms per stream of {TOKENS} tokens")
    assert len(bare) == len(ours) == STREAMS


def _measured(streams: Coroutine[Any, Any, list[float]]) -> tuple[list[float], float]:
    """What the streams give, in order, and the CPU time of this process per stream in ms."""
    before = time.process_time()
    lates = sorted(asyncio.run(streams))
    return lates, 1000.0 * (time.process_time() - before) / STREAMS


async def _by_client(url: str) -> list[float]:
    lates: list[float] = []
    async with LiveClient(url, timeout_s=600, max_connections=STREAMS) as client:
        stream = client._stream

        async def spied(url: str, headers: Headers, body: bytes, feed: OnBody) -> Any:
            def both(data: bytes, now: float) -> None:
                lates.extend(late_ms(data, now))
                feed(data, now)

            return await stream(url, headers, body, both)

        client._stream = spied  # type: ignore[method-assign]

        async def one(number: int) -> str:
            await asyncio.sleep(RAMP_UP_S * number / STREAMS)
            request = LiveRequest(f"r{number}", "a prompt", TOKENS, "fake-model", keep_text=False)
            return (await client.ask(request)).status

        assert set(await asyncio.gather(*map(one, range(STREAMS)))) == {"ok"}
    return lates


class _Bare(asyncio.Protocol):
    def __init__(self, lates: list[float], ended: asyncio.Future[None]) -> None:
        self.lates, self.ended = lates, ended

    def data_received(self, data: bytes) -> None:
        self.lates.extend(late_ms(data, time.perf_counter()))
        if b"[DONE]" in data:
            self.ended.set_result(None)


async def _by_bare_sockets(url: str) -> list[float]:
    """The least a client in Python can do: one write, and a search in what comes."""
    lates: list[float] = []
    parts = urlsplit(url)
    host, port = str(parts.hostname), int(parts.port or 0)
    loop = asyncio.get_running_loop()
    body = encode_body(LiveRequest("r", "a prompt", TOKENS, "fake-model"))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-length: {len(body)}\r\n\r\n"

    async def one(number: int) -> None:
        await asyncio.sleep(RAMP_UP_S * number / STREAMS)
        ended = loop.create_future()
        transport, _ = await loop.create_connection(lambda: _Bare(lates, ended), host, port)
        transport.write(head.encode() + body)
        await ended
        transport.close()

    await asyncio.gather(*map(one, range(STREAMS)))
    return lates
