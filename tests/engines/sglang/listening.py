"""A router's view of a server's donors: its index, fed by what the server announces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from tests.engines.sglang.running import KEY

from semblend.donors.index import DonorIndex
from semblend.donors.sink import DonorSink
from semblend.donors.zmq_feed import DonorFeed


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[DonorIndex, DonorFeed[DonorSink]]]:
    index = DonorIndex(KEY)  # the server announces its gates
    feed = DonorFeed(partial(DonorSink, index), index.forget)
    try:
        yield index, feed
    finally:
        await feed.close()
