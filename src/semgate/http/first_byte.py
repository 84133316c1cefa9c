"""Answers that begin no earlier than a given time, so that how quickly one came tells less. Used by proxy and router.

Time is padded here and not in the engine, where it would hold up a step of every request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator


async def held_until(deadline_s: float) -> None:
    """Until a time of ``time.perf_counter``; at once if it has passed."""
    if (left_s := deadline_s - time.perf_counter()) > 0.0:
        await asyncio.sleep(left_s)


async def with_first(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The stream again after its first chunk was taken out; an empty first chunk was the end."""
    if first:
        yield first
        async for chunk in rest:
            yield chunk
