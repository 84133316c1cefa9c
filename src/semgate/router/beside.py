"""Work on one request that may be long: done at once for a small body, in a thread for a large one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
# Below this a hop to another thread costs more than the work: about 5 ms at 20 us per KB.
INLINE_BYTES: Final = 256 * 1024


async def beside_the_loop(size_bytes: int, work: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    if size_bytes <= INLINE_BYTES:
        return work(*args, **options)
    return await asyncio.to_thread(work, *args, **options)
