"""Exchanges to trace records, one line each, in a thread of its own; the excess of its queue is dropped and counted.

The queue is bounded by the number of exchanges and by the bytes they hold: a body is kept until its record is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sembase.jsonl import NumberedFiles, QueuedLog
from sembase.trace.record import TraceRecord, record_as_json
from semgate.proxy.exchange import Exchange

PREFIX: Final = "trace"
QUEUE_BYTES: Final = 128 * 1024 * 1024
MAX_FILES: Final = 256

TraceWriter = QueuedLog[Exchange]


def trace_files(folder: Path, *, rotate_bytes: int, rotate_seconds: float, max_files: int = MAX_FILES) -> NumberedFiles:
    return NumberedFiles(folder, PREFIX, max_bytes=rotate_bytes, max_files=max_files, max_seconds=rotate_seconds)


def start_trace_writer(
    make: Callable[[Exchange], TraceRecord | None],
    files: NumberedFiles,
    *,
    queue_records: int,
    queue_bytes: int = QUEUE_BYTES,
    observe: Callable[[Exchange, TraceRecord], None] | None = None,
) -> TraceWriter:
    """``make`` may return None (nothing to record); ``observe`` gets each exchange with its record, for spans."""

    def line_of(exchange: Exchange) -> bytes | None:
        record = make(exchange)
        if record is None:
            return None
        if observe is not None:
            observe(exchange, record)
        return json.dumps(record_as_json(record), separators=(",", ":")).encode() + b"\n"

    writer = TraceWriter(
        "semgate-trace-writer",
        files,
        line_of,
        max_items=queue_records,
        max_bytes=queue_bytes,
        bytes_of=lambda exchange: exchange.held_bytes,
    )
    writer.start()
    return writer
