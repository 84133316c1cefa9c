"""Active health checks: one task for the whole fleet, one probe per replica and round, a few in parallel.

A replica turns unhealthy after ``fails_to_leave`` failed probes in a row and healthy again after ``passes_to_return``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sembase.errors import ConfigurationError
from semgate.fleet.fleet import Fleet
from semgate.fleet.replica import Replica

Probe = Callable[[str], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class HealthOptions:
    interval_s: float = 2.0
    timeout_s: float = 2.0
    fails_to_leave: int = 3
    passes_to_return: int = 1
    at_a_time: int = 16

    def __post_init__(self) -> None:
        if min(self.interval_s, self.timeout_s) <= 0.0 or min(self.fails_to_leave, self.passes_to_return) < 1:
            raise ConfigurationError("health checks need intervals and timeouts > 0 and counts >= 1")
        if self.at_a_time < 1:
            raise ConfigurationError("at_a_time must be at least 1")


class HealthChecks:
    """``probe(origin)`` returns whether the replica answers; OSError and TimeoutError count as a failed probe."""

    def __init__(self, fleet: Fleet, probe: Probe, options: HealthOptions | None = None) -> None:
        self._fleet = fleet
        self._probe = probe
        self._options = options or HealthOptions()
        self._in_a_row: dict[str, int] = {}  # passes are positive, fails negative
        self._permits = asyncio.Semaphore(self._options.at_a_time)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.check_all()
            await asyncio.sleep(self._options.interval_s)

    async def check_all(self) -> None:
        replicas = list(self._fleet)
        self._in_a_row = {each.name: self._in_a_row.get(each.name, 0) for each in replicas}
        await asyncio.gather(*(self._check(each) for each in replicas))

    async def _check(self, replica: Replica) -> None:
        async with self._permits:
            try:
                async with asyncio.timeout(self._options.timeout_s):
                    passed = await self._probe(replica.endpoint.origin)
            except (OSError, TimeoutError):
                passed = False
        before = self._in_a_row.get(replica.name, 0)
        count = max(before, 0) + 1 if passed else min(before, 0) - 1
        self._in_a_row[replica.name] = count
        if replica.healthy and count <= -self._options.fails_to_leave:
            replica.healthy = False
        elif not replica.healthy and count >= self._options.passes_to_return:
            replica.healthy = True
