"""Decides whether a replica is at fault when requests of clients fail on it: the router sends it a request of its own.

A client can make a request fail once and pass on the next replica, reset every connection it is sent on, or last
longer than any limit; many clients can fill the accept queue of a replica that answers. Such failures only raise a
suspicion; a fault counts if the replica also fails the router's own request. One check per replica at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from semgate.fleet.breaker import BreakerOptions
from semgate.fleet.replica import Replica

Check = Callable[[str], Awaitable[bool]]
TIMES: Final = BreakerOptions().faults_to_open


class Confirmation:
    """``check(origin)`` returns False only if the replica itself failed; a slow replica has not failed."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._running: dict[str, asyncio.Task[None]] = {}

    def suspect(self, replica: Replica) -> None:
        if replica.name not in self._running:
            task = asyncio.get_running_loop().create_task(self._confirm(replica))
            self._running[replica.name] = task
            task.add_done_callback(lambda _: self._running.pop(replica.name, None))

    async def _confirm(self, replica: Replica) -> None:
        for _ in range(TIMES):
            if await self._check(replica.endpoint.origin):
                return
            replica.fault()

    async def close(self) -> None:
        running = tuple(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
