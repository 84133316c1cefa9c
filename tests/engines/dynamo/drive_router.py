"""Runs in Dynamo's own environment: its real ``KvRouter`` with our provider beside it, driven by JSON lines.

Started by ``deployment.py`` with key and block size. Imports Dynamo, so it is not a module of the tests.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from dynamo.llm import KvRouter, KvRouterConfig  # type: ignore[import-not-found]
from dynamo.runtime import DistributedRuntime  # type: ignore[import-not-found]

from semblend.donors.zmq_feed import DonorFeed
from semblend.integration.dynamo.provider import SemanticEvidenceProvider
from semblend.integration.dynamo.router import Placement, SemanticRouter, exact_tokens


class Driver:
    def __init__(self, runtime: Any, key: bytes, block_tokens: int) -> None:
        self.provider = SemanticEvidenceProvider(key)
        self.feed = DonorFeed(self.provider.sink, self.provider.forget)
        self._endpoint = runtime.endpoint("dynamo.backend.generate")
        self._block_tokens = block_tokens

    async def start(self) -> None:
        self._client = await self._endpoint.client()
        await self._client.wait_for_instances()
        self._kv_router = KvRouter(self._endpoint, self._block_tokens, KvRouterConfig())
        self._router = SemanticRouter(self._kv_router, self.provider)

    async def workers(self, count: int) -> list[int]:
        async with asyncio.timeout(300):
            while len(ids := self._client.instance_ids()) < count:
                await asyncio.sleep(0.05)
        return sorted(ids)

    async def follow(self, worker_id: int, endpoint: str, replay: str) -> bool:
        self.feed.follow(worker_id, endpoint, replay)
        return True

    async def donors(self, count: int) -> int:
        async with asyncio.timeout(300):
            while len(self.provider.index) != count:
                await asyncio.sleep(0.02)
        return len(self.provider.index)

    async def place(self, tokens: list[int], cache_salt: str | None) -> dict[str, Any]:
        started = time.perf_counter()
        placement = await self._router.placement(tokens, cache_salt=cache_salt)
        return {
            "outcome": placement.outcome.value,
            "worker": placement.worker,
            "reason": placement.reason,
            "took_ms": (time.perf_counter() - started) * 1e3,
            "evidence": []
            if placement.evidence is None
            else [[entry.worker[0], entry.exact_tokens, entry.semantic_tokens] for entry in placement.evidence.workers],
        }

    async def serve(self, tokens: list[int], cache_salt: str | None, worker: int | None) -> dict[str, Any]:
        """Place, generate through Dynamo's router, and wait until its index shows who computed the prompt."""
        placement = await self._router.placement(tokens, cache_salt=cache_salt)
        if worker is not None:
            placement = Placement(placement.outcome, (worker, 0), "")
        before = exact_tokens(await self._kv_router.get_overlap_scores(tokens))
        stop = {"max_tokens": 2}
        stream = await self._router.generate(tokens, "mock", placement=placement, stop_conditions=stop)
        outputs = [output async for output in stream]
        async with asyncio.timeout(300):
            while (after := exact_tokens(await self._kv_router.get_overlap_scores(tokens))) == before:
                await asyncio.sleep(0.02)
        served = [key[0] for key, held in after.items() if held > before.get(key, 0)]
        return {"outcome": placement.outcome.value, "served": served, "finish": outputs[-1]["finish_reason"]}


async def main() -> None:
    key, block_tokens = sys.argv[1:]
    loop = asyncio.get_running_loop()
    runtime = DistributedRuntime(loop, "file", "tcp", event_plane="zmq")
    driver = Driver(runtime, key.encode(), int(block_tokens))
    await driver.start()
    lines: asyncio.StreamReader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        command, arguments = json.loads(line)
        answer = await getattr(driver, command)(**arguments)
        print("@@ " + json.dumps(answer), flush=True)
    await driver.feed.close()
    runtime.shutdown()


asyncio.run(main())
