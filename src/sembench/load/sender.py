"""Sending one request and recording it; every request that was begun ends in exactly one record, cancelled ones too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sembench.http.client import LiveClient, LiveRequest
from sembench.load.record import LoadRecord, cancelled_record, record_of


class Sender:
    """Counts what is in flight. ``start`` is the zero of all offsets, on the clock of ``time.perf_counter``."""

    def __init__(
        self, client: LiveClient, request_of: Callable[[int], LiveRequest], keep: Callable[[LoadRecord], None]
    ) -> None:
        self.start = time.perf_counter()
        self.in_flight = 0
        self.peak_in_flight = 0
        self._client = client
        self._request_of = request_of
        self._keep = keep

    def prepare(self, number: int) -> LiveRequest:
        return self._request_of(number)

    def elapsed_s(self) -> float:
        return time.perf_counter() - self.start

    async def send(self, request: LiveRequest, scheduled_s: float | None) -> None:
        sent_at = time.perf_counter()
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            reply = await self._client.ask(request)
        except asyncio.CancelledError:
            self._keep(cancelled_record(request.request_id, start=self.start, scheduled_s=scheduled_s, sent_at=sent_at))
            raise
        finally:
            self.in_flight -= 1
        self._keep(record_of(reply, start=self.start, scheduled_s=scheduled_s, sent_at=sent_at))
