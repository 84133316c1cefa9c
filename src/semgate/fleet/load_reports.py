"""Reads the load of every replica from the engine's own metrics, several times a second: a fleet in, views changed.

An idle replica is read once a second, because engines log each request.
One open connection per replica; nothing happens on the path of a request. A reply equal to the last one is not parsed
again. A replica whose pages have no load metrics is asked again later.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import Final

from sembase.http.client import Credentials, HttpClient, HttpFault
from semgate.fleet.engine_load import TARGETS, read_load
from semgate.fleet.replica import Replica

TIMEOUT_SECONDS: Final = 2.0
ASK_AGAIN_SECONDS: Final = 5.0  # a replica that does not report is not asked five times a second
IDLE_SECONDS: Final = 1.0
MAX_PAGE_BYTES: Final = 2 << 20


class LoadReports:
    """``run`` until cancelled, ``close`` after it."""

    def __init__(
        self, fleet: Callable[[], Iterable[Replica]], interval_s: float, credentials: Credentials | None = None
    ) -> None:
        self._fleet = fleet
        self._interval_s = interval_s
        self._client = HttpClient(
            connect_seconds=TIMEOUT_SECONDS,
            first_byte_seconds=TIMEOUT_SECONDS,
            idle_seconds=TIMEOUT_SECONDS,
            max_connections_per_origin=1,
            credentials=credentials,
        )
        self._idle_s = IDLE_SECONDS - interval_s / 2  # rounds are not exact
        self._readers: dict[Replica, _Reader] = {}
        self.read = 0
        self.failed = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + self._interval_s
            self.ask_all(loop.time())
            await asyncio.sleep(max(due_s - loop.time(), 0.0))

    def ask_all(self, now_s: float) -> None:
        """Sends one request to every replica that owes no answer."""
        gone = self._readers.keys() - set(replicas := list(self._fleet()))
        for replica in gone:
            self._readers.pop(replica).cancel()
        for replica in replicas:
            reader = self._readers.get(replica)
            if reader is None:
                reader = self._readers[replica] = _Reader(self, replica, self._client)
            if not reader.is_idle or now_s - reader.asked_s >= self._idle_s:
                reader.ask(now_s)

    async def close(self) -> None:
        for reader in self._readers.values():
            reader.cancel()
        self._readers.clear()
        await self._client.close()


class _Reader:
    def __init__(self, reports: LoadReports, replica: Replica, client: HttpClient) -> None:
        self._reports = reports
        self._replica = replica
        self._client = client
        self._asking: asyncio.Task[None] | None = None
        self._target = 0
        self._not_before_s = 0.0
        self.asked_s = -math.inf
        self._page = b""
        self._failures = 0  # in a row

    @property
    def is_idle(self) -> bool:
        """No request of this router is there, and the engine reported none."""
        load = self._replica.engine_load
        return load is not None and not (self._replica.in_flight or load.running or load.waiting)

    @property
    def is_asking(self) -> bool:
        return self._asking is not None and not self._asking.done()

    def ask(self, now_s: float) -> None:
        if now_s >= self._not_before_s and not self.is_asking:
            self.asked_s = now_s
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    def cancel(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        url = self._replica.endpoint.origin + TARGETS[self._target]
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status, page = await self._client.fetch("GET", url, max_bytes=MAX_PAGE_BYTES)
        except (HttpFault, TimeoutError):
            self._take(None)
        else:
            self._take(page if status == 200 and len(page) < MAX_PAGE_BYTES else None)

    def _take(self, page: bytes | None) -> None:
        reports, replica = self._reports, self._replica
        if page is not None and page == self._page and replica.engine_load is not None:
            reports.read += 1
            replica.report_load(replica.engine_load)
            return
        load, had_load = None if page is None else read_load(page), replica.engine_load is not None
        replica.report_load(load)
        self._page = b"" if load is None or page is None else page
        if load is not None:
            reports.read += 1
            self._failures = 0
            return
        reports.failed += 1
        self._failures += 1
        if not had_load or self._failures > 1:
            self._target = (self._target + 1) % len(TARGETS)
        if self._failures >= len(TARGETS):
            self._not_before_s = asyncio.get_running_loop().time() + ASK_AGAIN_SECONDS
