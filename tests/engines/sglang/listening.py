"""A router's view of a server's donors: its index, fed by what the server announces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import zmq.asyncio
from tests.engines.sglang.running import KEY

from semblend.donors.index import DonorIndex
from semgate.donors.subscriber import DonorFeed


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[DonorIndex, DonorFeed]]:
    context = zmq.asyncio.Context()
    index = DonorIndex(KEY)  # the server announces its gates
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
