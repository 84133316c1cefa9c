"""The records of several files as one stream by time, with few files open.

Rotated files follow each other, those of several processes overlap, session files overlap a lot. A file is opened once
for its first record, and again when the stream reaches that time. Recorders write requests as they finish, so the
result is nearly sorted; ``build.in_time_order`` sorts the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence

from sembase.trace.record import TraceRecord

Open = Callable[[], Iterator[TraceRecord]]


def merge_records(sources: Sequence[Open]) -> Iterator[TraceRecord]:
    """Holds one record per open file."""
    starts = [(first.timestamp_ms, number) for number, each in enumerate(sources) if (first := next(each(), None))]
    waiting = sorted(starts, reverse=True)
    running: list[tuple[float, int, TraceRecord, Iterator[TraceRecord]]] = []
    while waiting or running:
        while waiting and (not running or waiting[-1][0] <= running[0][0]):
            _, number = waiting.pop()
            _advance(running, number, sources[number]())
        _, number, record, source = heapq.heappop(running)
        yield record
        _advance(running, number, source)


def _advance(
    running: list[tuple[float, int, TraceRecord, Iterator[TraceRecord]]], number: int, source: Iterator[TraceRecord]
) -> None:
    if (record := next(source, None)) is not None:
        heapq.heappush(running, (record.timestamp_ms, number, record, source))
