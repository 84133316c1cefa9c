"""The same KV events over ZeroMQ into our feed and into Dynamo's stand-alone indexer: how fast, how soon an answer.

Ours answers a function call, the indexer a POST on a kept-open loopback connection: what a router written in Python
would do with either.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.engines.ports import free_port
from scripts.private_venv import clean_environment

from benchmarks.documents import ROOT
from benchmarks.router.index.world import BLOCK_TOKENS, CHAIN_BLOCKS, World, resident_bytes
from sembase.zmq_stream import StreamOptions
from semgate.events.feed import EventFeed
from semgate.index.blocks import BlockIndex
from semgate.index.keys import request_keys
from semgate.router.operations.warm_up import warm_up

LIMIT_SECONDS = 300.0


@contextmanager
def publishing(blocks: int) -> Iterator[tuple[int, int]]:
    """(port, messages) of a publisher that starts at the first subscription."""
    command = [sys.executable, "-m", "benchmarks.router.index.publisher", str(blocks)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port, messages = process.stdout.readline().split()
        yield int(port), int(messages)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=30)


def measure_ours(blocks: int, requests: int) -> dict[str, Any]:
    with publishing(blocks) as (port, messages):
        return asyncio.run(_feed(World(blocks, 1, requests), port, messages))


async def _feed(world: World, port: int, messages: int) -> dict[str, Any]:
    warm_up()
    feed = EventFeed(BlockIndex(1 << 21))
    options = StreamOptions(f"tcp://127.0.0.1:{port}", receive_messages=0)
    cpu, started = time.process_time(), time.monotonic()
    feed.add("one", options)
    try:
        while feed.statuses()[0].next_seq != messages:
            if time.monotonic() - started > LIMIT_SECONDS:
                return {"failure": f"not done after {LIMIT_SECONDS:.0f} s"}
            await asyncio.sleep(0.02)
        took, used = time.monotonic() - started, time.process_time() - cpu
        times, wrong = [], 0
        for shared, tokens in world.asked():
            before = time.perf_counter()
            longest = feed.index.longest(request_keys(tokens, BLOCK_TOKENS, feed.request_root(None, None)))
            times.append((time.perf_counter() - before) * 1e6)
            wrong += int(longest[0]) != shared
        stored = feed.index.blocks(0)
        return {"blocks": stored, "seconds": took, "cpu_seconds": used, "query_us": times, "wrong": wrong}
    finally:
        await feed.close()


def measure_indexer(python: Path, blocks: int, requests: int) -> dict[str, Any]:
    world = World(blocks, 1, requests)
    with publishing(blocks) as (events_port, _):
        port = free_port()
        command = [
            *(str(python), "-m", "dynamo.indexer", "--port", str(port), "--block-size", str(BLOCK_TOKENS)),
            *("--threads", "2", "--workers", f"1=tcp://127.0.0.1:{events_port}"),
        ]
        log = subprocess.DEVNULL
        started = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=clean_environment())
        try:
            return _ask_indexer(world, process.pid, port, started)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _ask_indexer(world: World, pid: int, port: int, started: float) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    before_bytes = 0
    last = world.tokens(world.chains - 1).tolist()
    while True:
        if time.monotonic() - started > LIMIT_SECONDS:
            return {"failure": f"not done after {LIMIT_SECONDS:.0f} s"}
        try:
            if not before_bytes:
                before_bytes = resident_bytes(pid)
            if _query(connection, last) == CHAIN_BLOCKS:
                break
        except OSError:
            connection.close()
        time.sleep(0.05)
    took = time.monotonic() - started
    used = _cpu_seconds(pid)
    grown = resident_bytes(pid) - before_bytes
    times, wrong = [], 0
    for shared, tokens in world.asked():
        plain = tokens.tolist()
        before = time.perf_counter()
        found = _query(connection, plain)
        times.append((time.perf_counter() - before) * 1e6)
        wrong += found != shared
    connection.close()
    return {
        "blocks": world.chains * CHAIN_BLOCKS,
        "seconds": took,
        "cpu_seconds": used,
        "query_us": times,
        "wrong": wrong,
        "resident_bytes": grown,
    }


def _query(connection: http.client.HTTPConnection, tokens: list[int]) -> int:
    """Leading blocks of the one worker; 0 when it knows none."""
    body = json.dumps({"token_ids": tokens, "model_name": "default"})
    connection.request("POST", "/query", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    if answer.status != 200:
        return 0
    best = max((tokens for ranks in found["scores"].values() for tokens in ranks.values()), default=0)
    return int(best) // BLOCK_TOKENS


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
