"""When requests are sent and how each is recorded: arrival times, the open and the closed loop, the sender.

Arrival times are drawn in advance, so a slow server cannot delay them. Gaps are gamma-distributed: ``burstiness`` 1 is
a Poisson process, below 1 gives bursts, above 1 a steadier rate.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sembench.http.client import LiveClient, LiveRequest
from sembench.load.records import LoadRecord, cancelled_record, record_of


def gamma_offsets(rate_per_s: float, burstiness: float, seed: int) -> Iterator[float]:
    """Endless. The mean gap is ``1 / rate_per_s`` for every burstiness."""
    draws = random.Random(f"sembench-arrivals-{seed}")
    scale = 1.0 / (rate_per_s * burstiness)
    at = 0.0
    while True:
        at += draws.gammavariate(burstiness, scale)
        yield at


def ramp_offsets(workers: int, ramp_up_s: float) -> list[float]:
    """When each worker of a closed loop sends its first request."""
    return [ramp_up_s * number / workers for number in range(workers)]


@dataclass(frozen=True, slots=True)
class Limit:
    """When to stop sending. Requests in flight at that time are awaited."""

    requests: int | None
    duration_s: float | None

    def allows(self, number: int, at_s: float) -> bool:
        if self.requests is not None and number >= self.requests:
            return False
        return self.duration_s is None or at_s < self.duration_s


class Sender:
    """Sends requests and counts those in flight. Every request ends in exactly one record, also if it is cancelled.

    ``start`` is the zero of all offsets, on the clock of ``time.perf_counter``.
    """

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


async def open_loop(sender: Sender, offsets_s: Iterable[float], limit: Limit) -> None:
    """Sends at the given times whatever the server does: any number may be in flight, and our lateness is recorded."""
    async with asyncio.TaskGroup() as group:
        for number, due_s in enumerate(offsets_s):
            if not limit.allows(number, due_s):
                break
            request = sender.prepare(number)  # before the wait, so that building it does not delay it
            # Yields even when late: replies must be read while a backlog is sent.
            await asyncio.sleep(max(0.0, due_s - sender.elapsed_s()))
            group.create_task(sender.send(request, due_s))


async def closed_loop(sender: Sender, first_offsets_s: Iterable[float], limit: Limit) -> None:
    """One worker per offset; each sends its next request when its previous one has ended."""
    numbers = itertools.count()

    async def work(first_s: float) -> None:
        await asyncio.sleep(max(0.0, first_s - sender.elapsed_s()))
        while limit.allows(number := next(numbers), sender.elapsed_s()):
            await sender.send(sender.prepare(number), None)

    async with asyncio.TaskGroup() as group:
        for first_s in first_offsets_s:
            group.create_task(work(first_s))
