"""A router's view of a server's donors: its index, fed by what the server announces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import zmq.asyncio
from tests.engines.sglang.running import KEY

from semgate.donors.anchors import DonorIndex
from semgate.donors.cover import ReuseModel
from semgate.donors.subscriber import DonorFeed


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[DonorIndex, DonorFeed]]:
    context = zmq.asyncio.Context()
    index = DonorIndex(KEY, model=ReuseModel(boundary_tokens=16, max_context_share=1.0, min_reuse_ratio=0.0))
    feed = DonorFeed(index, context)
    try:
        yield index, feed
    finally:
        await feed.close()
        context.term()


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.05)
