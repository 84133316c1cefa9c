"""Engines without a model, one process for all: prefix caches with LRU eviction, real KV events, a prefill queue each.

``python -m benchmarks.router.several.engines COUNT CAPACITY_BLOCKS ANNOUNCED_BLOCKS BUFFERED_MESSAGES`` prints their
ports as one JSON line and serves until its input ends. A request's prompt is token ids; it takes ``US_PER_TOKEN`` for
each that is not cached, one request at a time, and the answer's usage says how many were. ``/metrics`` reports running
and waiting requests.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final

import numpy as np
import zmq
import zmq.asyncio

from semgate.events.wire import BlockRemoved, BlockStored, WireEvent, encode_batch

BLOCK_TOKENS: Final = 16
US_PER_TOKEN: Final = 20.0
EVENT_BLOCKS: Final = 64
_END: Final = (-1).to_bytes(8, "big", signed=True)


class FakeEngine:
    def __init__(self, context: zmq.asyncio.Context, number: int, capacity: int, buffered: int) -> None:
        self.number = number
        self._capacity = capacity
        self._held: OrderedDict[int, None] = OrderedDict()
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=buffered)
        self._seq = 0
        self._queue = asyncio.Lock()
        self._running = 0
        self._pub, self._replay = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        self._pub.setsockopt(zmq.SNDHWM, 0)
        self.ports = {
            "events": self._pub.bind_to_random_port("tcp://127.0.0.1"),
            "replay": self._replay.bind_to_random_port("tcp://127.0.0.1"),
        }
        self._serving = asyncio.create_task(self._serve_replays())

    async def start(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1024, limit=1 << 22)
        self.ports["http"] = server.sockets[0].getsockname()[1]
        self._server = server

    async def announce(self, blocks: int) -> None:
        """Blocks of prompts that no client sends: chains of 64."""
        random = np.random.default_rng(self.number)
        for first in range(0, blocks, EVENT_BLOCKS):
            tokens = random.integers(0, 50_000, EVENT_BLOCKS * BLOCK_TOKENS).tolist()
            hashes = [self.number << 40 | first + block + 1 for block in range(EVENT_BLOCKS)]
            await self._publish([BlockStored(list(hashes), None, tokens, BLOCK_TOKENS, medium="GPU")])
            if first % (64 * EVENT_BLOCKS) == 0:
                await asyncio.sleep(0)

    async def _serve_replays(self) -> None:
        while True:
            client, _, first = await self._replay.recv_multipart()
            for seq, payload in list(self._buffer):
                if seq >= int.from_bytes(first, "big"):
                    await self._replay.send_multipart((client, b"", b"", seq.to_bytes(8, "big"), payload))
            await self._replay.send_multipart((client, b"", b"", _END, b""))

    async def _publish(self, events: Sequence[WireEvent]) -> None:
        payload, seq = encode_batch(time.time(), events), self._seq
        self._seq += 1
        self._buffer.append((seq, payload))
        await self._pub.send_multipart((b"", seq.to_bytes(8, "big"), payload))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                length = next((int(line[15:]) for line in head if line.lower().startswith("content-length:")), 0)
                body = await reader.readexactly(length)
                answer = await self._answer(head[0].split(" ")[1], body)
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
                    + answer
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, path: str, body: bytes) -> bytes:
        if path.startswith("/metrics"):
            waiting = max(self._running - 1, 0)
            return (
                f"vllm:num_requests_running {min(self._running, 1)}\nvllm:num_requests_waiting {waiting}\n"
                "vllm:kv_cache_usage_perc 0.5\n"
            ).encode()
        if not body:
            return b'{"object": "list", "data": [{"id": "m"}]}'
        prompt = json.loads(body)["prompt"]
        self._running += 1
        try:
            async with self._queue:
                cached = await self._compute(prompt)
        finally:
            self._running -= 1
        usage = {
            "prompt_tokens": len(prompt),
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens": 1,
        }
        return json.dumps({"choices": [{"text": "x"}], "usage": usage}).encode()

    async def _compute(self, prompt: Sequence[int]) -> int:
        hashes: list[int] = []
        above = 17
        for first in range(0, len(prompt) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            above = hash((above, *prompt[first : first + BLOCK_TOKENS])) & (2**63 - 1)
            hashes.append(above)
        known = 0
        while known < len(hashes) and hashes[known] in self._held:
            known += 1
        await asyncio.sleep((len(prompt) - known * BLOCK_TOKENS) * US_PER_TOKEN / 1e6)
        events: list[WireEvent] = []
        if known < len(hashes):
            tokens = list(prompt[known * BLOCK_TOKENS : len(hashes) * BLOCK_TOKENS])
            parent = hashes[known - 1] if known else None
            events.append(BlockStored(list(hashes[known:]), parent, tokens, BLOCK_TOKENS, medium="GPU"))
        for hash_ in reversed(hashes):  # a child is evicted before its parent
            self._held[hash_] = None
            self._held.move_to_end(hash_)
        gone = [self._held.popitem(last=False)[0] for _ in range(len(self._held) - self._capacity)]
        if gone:
            events.append(BlockRemoved(list(gone), medium="GPU"))
        if events:
            await self._publish(events)
        return known * BLOCK_TOKENS


async def serve(count: int, capacity: int, announced: int, buffered: int) -> None:
    context = zmq.asyncio.Context()
    engines = [FakeEngine(context, number, capacity, buffered) for number in range(count)]
    for each in engines:
        await each.start()
    print(json.dumps([each.ports for each in engines]), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        if line.strip() == "announce":
            await asyncio.gather(*(each.announce(announced) for each in engines))
    context.destroy(linger=0)


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:5])))
