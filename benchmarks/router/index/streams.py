"""KV events over ZeroMQ into our feed: how fast, how soon an answer."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.documents import ROOT
from benchmarks.router.index.world import BLOCK_TOKENS, World
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


def measure_stream(blocks: int, requests: int) -> dict[str, Any]:
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
