"""The one thread that turns exchanges into records and records into lines. Handing over never waits; what does not fit
is counted and dropped.

Bounded by a number of exchanges and by the bytes they hold (a body is kept until its record is made).
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sembase.trace.record import TraceRecord, record_as_json
from semgate.proxy.exchange import Exchange
from semgate.proxy.trace_file import TraceFiles

QUEUE_BYTES: Final = 128 * 1024 * 1024
_BATCH: Final = 64


@dataclass(slots=True)
class WriterCounts:
    """Read by the metrics; written under the queue's lock or by the thread alone."""

    written: int = 0
    dropped_full: int = 0
    dropped_error: int = 0
    without_prompt: int = 0
    torn_lines: int = 0


class TraceWriter:
    """``make`` may return None (nothing to record); ``observe`` gets each exchange with its record, for spans."""

    def __init__(
        self,
        make: Callable[[Exchange], TraceRecord | None],
        files: TraceFiles,
        *,
        queue_records: int,
        queue_bytes: int = QUEUE_BYTES,
        observe: Callable[[Exchange, TraceRecord], None] | None = None,
    ) -> None:
        self.counts = WriterCounts()
        self._make = make
        self._files = files
        self._observe = observe
        self._queue: deque[Exchange] = deque()
        self._queue_records = queue_records
        self._queue_bytes = queue_bytes
        self._held_bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="semgate-trace-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def put(self, exchange: Exchange) -> bool:
        """False: dropped and counted. Takes about 1 us; the thread holds the lock for no longer."""
        size_bytes = exchange.held_bytes
        with self._changed:
            is_full = len(self._queue) >= self._queue_records or self._held_bytes + size_bytes > self._queue_bytes
            if is_full or self._closing:
                self.counts.dropped_full += 1
                return False
            self._queue.append(exchange)
            self._held_bytes += size_bytes
            if len(self._queue) == 1:
                self._changed.notify()
        return True

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Writes what waits; what is not on disk by then is counted as dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_seconds)
        with self._changed:
            self.counts.dropped_full += len(self._queue)
            self._queue.clear()

    def _run(self) -> None:
        while batch := self._take():
            lines = [line for exchange in batch if (line := self._line(exchange)) is not None]
            if lines:
                self._append(lines)
        try:
            self._files.close()
        except OSError:
            self.counts.dropped_error += 1

    def _take(self) -> list[Exchange]:
        with self._changed:
            while not self._queue and not self._closing:
                self._changed.wait()
            batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            self._held_bytes -= sum(exchange.held_bytes for exchange in batch)
            return batch

    def _line(self, exchange: Exchange) -> bytes | None:
        try:
            record = self._make(exchange)
            if record is None:
                self.counts.without_prompt += 1
                return None
            if self._observe is not None:
                self._observe(exchange, record)
            return json.dumps(record_as_json(record), separators=(",", ":")).encode() + b"\n"
        except (ValueError, TypeError, RecursionError):  # a body nobody thought of must not end the thread
            self.counts.dropped_error += 1
            return None

    def _append(self, lines: list[bytes]) -> None:
        try:
            self._files.append(b"".join(lines), time.monotonic())
        except OSError:
            self.counts.dropped_error += len(lines)
        else:
            self.counts.written += len(lines)
