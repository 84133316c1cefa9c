"""What runs on its own: an item with its donors, or a stream in its order. Rows come out as they are ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from sembench.live.session import Session
from sembench.manifest import WorkloadItem
from sembench.metrics.rows import RequestRow


@dataclass(frozen=True, slots=True)
class LiveUnit:
    """``earlier`` are the first items of a stream whose rows are known: they are sent again, and not measured."""

    items: tuple[WorkloadItem, ...]
    is_stream: bool = False
    earlier: tuple[WorkloadItem, ...] = ()


def live_units(items: Sequence[WorkloadItem], done: Collection[str], *, streams_apart: bool) -> list[LiveUnit]:
    """In the manifest's order. ``streams_apart`` off makes an item of a stream one like any other, for cold runs."""
    streams: dict[str, list[WorkloadItem]] = {}
    units: dict[str, LiveUnit] = {}
    for item in items:
        if item.is_stream and not streams_apart:
            pass
        elif item.is_stream:
            streams.setdefault(item.stream_id, []).append(item)
            units.setdefault(f"stream {item.stream_id}", LiveUnit((), is_stream=True))
            continue
        if item.item_id not in done:
            units[f"item {item.item_id}"] = LiveUnit((item,))
    for stream_id, members in streams.items():
        left = [index for index, member in enumerate(members) if member.item_id not in done]
        first = left[0] if left else len(members)
        units[f"stream {stream_id}"] = LiveUnit(tuple(members[first:]), True, tuple(members[:first]))
    return [unit for unit in units.values() if unit.items]


async def replay(units: Sequence[LiveUnit], session: Session, concurrency: int) -> AsyncGenerator[RequestRow, None]:
    """At most ``concurrency`` units at a time. The first error ends all of them.

    A unit goes on when its row was taken: whoever writes rows has written it before the next request is sent.
    """
    waiting = iter(units)
    ready: asyncio.Queue[tuple[RequestRow, asyncio.Event] | None] = asyncio.Queue()

    async def work() -> None:
        try:
            for unit in waiting:
                async with aclosing(_replay_unit(unit, session)) as rows:
                    async for row in rows:
                        taken = asyncio.Event()
                        ready.put_nowait((row, taken))
                        await taken.wait()
        finally:
            ready.put_nowait(None)

    tasks = [asyncio.create_task(work()) for _ in range(min(concurrency, len(units)))]
    try:
        working = len(tasks)
        while working:
            entry = await ready.get()
            if entry is not None:
                yield entry[0]
                entry[1].set()
                continue
            working -= 1
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _replay_unit(unit: LiveUnit, session: Session) -> AsyncGenerator[RequestRow, None]:
    if not unit.is_stream:
        for item in unit.items:
            yield await session.measure(item)
        return
    await session.begin_stream(unit.earlier)
    for item in unit.items:
        yield await session.measure_in_stream(item)
