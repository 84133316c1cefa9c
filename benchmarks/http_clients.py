"""CPU time of one streamed request in the clients a user would pick: ours, aiohttp, httpx.

Run ``python -m benchmarks.http_clients``. All of them run in this process in turn, round by round, against a stand-in
server in a process of its own. Each only reads the chunks of the answer; none decodes an event. Reported is the
processor time of this process per request: the median of the rounds with its range. Idle time does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Final

import aiohttp
import httpx
import uvloop
from tests.fakes.openai_server import running

from benchmarks.console import progress, write_results
from sembase.http.client import HttpClient

_PATH: Final = "/v1/completions"
_HEADERS: Final = ((b"content-type", b"application/json"),)
_SECONDS: Final = 120.0
Run = Callable[[str, bytes, int, int], Awaitable[int]]


async def by_ours(url: str, body: bytes, streams: int, requests: int) -> int:
    """As the gateway reads: chunk by chunk, in a task."""
    client = _client(streams)

    async def one() -> int:
        reply = await client.send(url, "POST", _PATH, _HEADERS, body)
        return sum([len(chunk) async for chunk in reply.chunks()])

    try:
        return await _spread(one, streams, requests)
    finally:
        await client.close()


async def by_ours_called(url: str, body: bytes, streams: int, requests: int) -> int:
    """As the bench reads: the chunks go to a function in the turn of the loop that read them."""
    client = _client(streams)

    async def one() -> int:
        read: list[int] = []
        reply = await client.send(url, "POST", _PATH, _HEADERS, body, on_body=lambda piece, _: read.append(len(piece)))
        await reply.read(0)
        return sum(read)

    try:
        return await _spread(one, streams, requests)
    finally:
        await client.close()


async def by_aiohttp(url: str, body: bytes, streams: int, requests: int) -> int:
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    connector = aiohttp.TCPConnector(limit=streams)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as client:

        async def one() -> int:
            async with client.post(url + _PATH, data=body, headers={"content-type": "application/json"}) as reply:
                return sum([len(chunk) async for chunk in reply.content.iter_any()])

        return await _spread(one, streams, requests)


async def by_httpx(url: str, body: bytes, streams: int, requests: int) -> int:
    limits = httpx.Limits(max_connections=streams, max_keepalive_connections=streams)
    async with httpx.AsyncClient(limits=limits, timeout=_SECONDS, trust_env=False) as client:

        async def one() -> int:
            headers = {"content-type": "application/json"}
            async with client.stream("POST", url + _PATH, content=body, headers=headers) as reply:
                return sum([len(chunk) async for chunk in reply.aiter_raw()])

        return await _spread(one, streams, requests)


def _client(streams: int) -> HttpClient:
    return HttpClient(
        connect_seconds=_SECONDS,
        first_byte_seconds=_SECONDS,
        idle_seconds=_SECONDS,
        max_connections_per_origin=streams,
    )


async def _spread(one: Callable[[], Awaitable[int]], streams: int, requests: int) -> int:
    """``streams`` workers send ``requests`` requests each; the bytes read."""

    async def work() -> int:
        return sum([await one() for _ in range(requests)])

    return sum(await asyncio.gather(*(work() for _ in range(streams))))


CLIENTS: Final[dict[str, Run]] = {
    "ours": by_ours,
    "ours-on_body": by_ours_called,
    "aiohttp": by_aiohttp,
    "httpx": by_httpx,
}
LOOPS: Final = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


def main() -> int:
    arguments = _parse()
    body = json.dumps({"model": "fake-model", "prompt": "a prompt", "max_tokens": arguments.chunks, "stream": True})
    results: dict[str, dict[str, list[float]]] = {}
    versions = {name: version(name) for name in ("aiohttp", "httpx", "httptools", "uvloop")}
    for itl_ms in arguments.itl_ms:
        costs: dict[str, list[float]] = {name: [] for name in arguments.clients}
        for number in range(arguments.rounds + 1):
            for name in arguments.clients:
                with running(ttft_ms=itl_ms, itl_ms=itl_ms, tokens=arguments.chunks) as url:
                    cost_us = _cost_us(CLIENTS[name], url, body.encode(), arguments)
                if number:  # the first round fills caches
                    costs[name].append(cost_us)
        results[f"{itl_ms:g} ms between chunks"] = costs
        _show(itl_ms, costs, arguments)
    write_results("http-clients", {"arguments": vars(arguments), "versions": versions, "us_per_request": results})
    progress(f"versions: {', '.join(f'{name} {number}' for name, number in versions.items())}")
    return 0


def _cost_us(run: Run, url: str, body: bytes, arguments: argparse.Namespace) -> float:
    async def timed() -> float:
        before = time.process_time()
        read = await run(url, body, arguments.streams, arguments.requests)
        assert read > 0
        return time.process_time() - before

    with asyncio.Runner(loop_factory=LOOPS[arguments.loop]) as runner:
        seconds = runner.run(timed())
    requests: int = arguments.streams * arguments.requests
    return 1e6 * seconds / requests


def _show(itl_ms: float, costs: dict[str, list[float]], arguments: argparse.Namespace) -> None:
    load = f"{arguments.streams} streams of {arguments.chunks} chunks, {itl_ms:g} ms between chunks, {arguments.loop}"
    progress(f"{load}: CPU per request")
    base = statistics.median(next(iter(costs.values())))
    for name, values in costs.items():
        p50 = statistics.median(values)
        progress(f"  {name:13} {p50:7.0f} us ({min(values):.0f} to {max(values):.0f})  {p50 / base:.1f}x")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_clients", description=__doc__)
    parser.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS), help="default: all")
    parser.add_argument("--streams", type=int, default=256, help="open at a time (default: %(default)s)")
    parser.add_argument("--loop", choices=list(LOOPS), default="uvloop", help="the gateway's by default")
    parser.add_argument("--requests", type=int, default=2, help="per stream (default: %(default)s)")
    parser.add_argument("--chunks", type=int, default=16, help="of an answer (default: %(default)s)")
    parser.add_argument("--itl-ms", type=float, nargs="+", default=[0.0, 10.0], help="between chunks (default: 0 10)")
    parser.add_argument("--rounds", type=int, default=3, help="measured runs of every client (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
