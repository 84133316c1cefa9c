"""The two ways to load a server: at given times whatever it does (open), or so many requests at a time (closed)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from sembench.load.sender import Sender


@dataclass(frozen=True, slots=True)
class Limit:
    """When to stop sending; what is in flight then is waited for."""

    requests: int | None
    duration_s: float | None

    def allows(self, number: int, at_s: float) -> bool:
        if self.requests is not None and number >= self.requests:
            return False
        return self.duration_s is None or at_s < self.duration_s


async def open_loop(sender: Sender, offsets_s: Iterable[float], limit: Limit) -> None:
    """Nothing the server does delays a request: any number may be in flight, and our own lateness is recorded."""
    async with asyncio.TaskGroup() as group:
        for number, due_s in enumerate(offsets_s):
            if not limit.allows(number, due_s):
                break
            request = sender.prepare(number)  # before the wait, so that making it does not make it late
            # Yields even when late: answers must be read while a backlog is sent.
            await asyncio.sleep(max(0.0, due_s - sender.elapsed_s()))
            group.create_task(sender.send(request, due_s))


async def closed_loop(sender: Sender, first_offsets_s: Iterable[float], limit: Limit) -> None:
    """One worker per offset; each sends its next request when its last one has ended."""
    numbers = itertools.count()

    async def work(first_s: float) -> None:
        await asyncio.sleep(max(0.0, first_s - sender.elapsed_s()))
        while limit.allows(number := next(numbers), sender.elapsed_s()):
            await sender.send(sender.prepare(number), None)

    async with asyncio.TaskGroup() as group:
        for first_s in first_offsets_s:
            group.create_task(work(first_s))
