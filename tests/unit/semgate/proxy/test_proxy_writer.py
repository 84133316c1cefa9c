"""The thread that writes traces: bounds, counted drops, exchanges without a record, a full disk."""

from __future__ import annotations

import errno
import json
import threading
import time
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

from sembase.jsonl import NumberedFiles
from sembase.trace.record import TraceBlock, TraceRecord
from semgate.proxy.exchange import Exchange
from semgate.proxy.writer import start_trace_writer, trace_files


def exchange(body: bytes = b"x") -> Exchange:
    return Exchange("/v1/completions", (), body, "t", 0.0, 0.0)


def record_of(given: Exchange) -> TraceRecord | None:
    if given.body == b"none":
        return None
    if given.body == b"odd":
        raise RecursionError
    return TraceRecord(given.body.decode(), 0.0, (TraceBlock("user", 1, content_hash="h"),))


def files(folder: Path) -> NumberedFiles:
    return trace_files(folder, rotate_bytes=1 << 20, rotate_seconds=3600.0)


def written(folder: Path) -> list[str]:
    lines = [line for path in sorted(folder.glob("trace-*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line)["request_id"] for line in lines]


class Gate:
    """Holds the thread until it is opened, so that a queue fills for certain."""

    def __init__(self) -> None:
        self.opened, self.entered = threading.Event(), threading.Event()

    def make(self, given: Exchange) -> TraceRecord | None:
        self.entered.set()
        assert self.opened.wait(PATIENCE_S)
        return record_of(given)


def test_everything_that_fits_is_on_disk_after_close(tmp_path: Path) -> None:
    writer = start_trace_writer(record_of, files(tmp_path), queue_records=1000)
    assert all(writer.put(exchange(b"%d" % number)) for number in range(500))
    writer.close()
    assert written(tmp_path) == [str(number) for number in range(500)]
    assert (writer.counts.written, writer.counts.dropped_full, writer.waiting) == (500, 0, 0)


@pytest.mark.parametrize(("records", "size_bytes", "fit"), [(3, 1 << 20, 3), (100, 3 * 2100, 3)])
def test_a_full_queue_drops_and_counts_and_never_waits(tmp_path: Path, records: int, size_bytes: int, fit: int) -> None:
    gate = Gate()
    writer = start_trace_writer(gate.make, files(tmp_path), queue_records=records, queue_bytes=size_bytes)
    writer.put(exchange(b"first"))
    assert gate.entered.wait(PATIENCE_S)
    taken = [writer.put(exchange(b"%d" % number)) for number in range(10)]
    gate.opened.set()  # the queue was full and shut, and every put returned
    writer.close()
    assert taken == [True] * fit + [False] * (10 - fit)
    assert writer.counts.dropped_full == 10 - fit
    assert written(tmp_path) == ["first", *(str(number) for number in range(fit))]


def test_after_close_everything_is_dropped_and_counted(tmp_path: Path) -> None:
    writer = start_trace_writer(record_of, files(tmp_path), queue_records=10)
    writer.close()
    assert not writer.put(exchange())
    assert writer.counts.dropped_full == 1


def test_what_cannot_be_recorded_is_counted_and_the_rest_is_written(tmp_path: Path) -> None:
    writer = start_trace_writer(record_of, files(tmp_path), queue_records=10)
    for body in (b"a", b"none", b"odd", b"b"):
        writer.put(exchange(body))
    writer.close()
    assert written(tmp_path) == ["a", "b"]
    assert (writer.counts.skipped, writer.counts.dropped_error) == (1, 1)


def test_a_disk_that_refuses_is_counted_and_tried_again(tmp_path: Path) -> None:
    kept = files(tmp_path)
    real, failures = kept.append, [OSError(errno.ENOSPC, "full")]

    def append(lines: bytes, now_s: float = 0.0) -> None:
        if failures:
            raise failures.pop()
        real(lines, now_s)

    kept.append = append  # type: ignore[method-assign]
    writer = start_trace_writer(record_of, kept, queue_records=10)
    writer.put(exchange(b"lost"))
    while writer.counts.dropped_error == 0:
        time.sleep(0.001)
    writer.put(exchange(b"kept"))
    writer.close()
    assert written(tmp_path) == ["kept"]
