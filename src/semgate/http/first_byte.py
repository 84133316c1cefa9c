"""Delays the first byte of an answer, so that its latency reveals less. Used by proxy and router.

The delay is added here and not in the engine, where it would hold up a step of every request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator


async def held_until(deadline_s: float) -> None:
    """Sleeps until a time of ``time.perf_counter``; returns at once if it has passed."""
    if (left_s := deadline_s - time.perf_counter()) > 0.0:
        await asyncio.sleep(left_s)


async def with_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Puts the first chunk, read already, back before the rest of its stream. An empty first chunk was the end."""
    if first:
        yield first
        async for chunk in rest:
            yield chunk
