"""The writer's thread and its files: bounds, counted drops, rotation, torn lines, a full disk."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sembase.trace.record import TraceBlock, TraceRecord
from semgate.proxy.exchange import Exchange
from semgate.proxy.trace_file import TraceFiles, mend_torn_files
from semgate.proxy.writer import TraceWriter


def exchange(body: bytes = b"x") -> Exchange:
    return Exchange("/v1/completions", (), body, "t", 0.0, 0.0)


def record_of(given: Exchange) -> TraceRecord | None:
    if given.body == b"none":
        return None
    if given.body == b"odd":
        raise RecursionError
    return TraceRecord(given.body.decode(), 0.0, (TraceBlock("user", 1, content_hash="h"),))


def files(folder: Path, *, rotate_bytes: int = 1 << 20, rotate_seconds: float = 3600.0, kept: int = 16) -> TraceFiles:
    return TraceFiles(folder, rotate_bytes=rotate_bytes, rotate_seconds=rotate_seconds, kept_files=kept)


def written(folder: Path) -> list[str]:
    lines = [line for path in sorted(folder.glob("trace-*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line)["request_id"] for line in lines]


class Gate:
    """Holds the thread until it is opened, so that a queue fills for certain."""

    def __init__(self) -> None:
        self.opened, self.entered = threading.Event(), threading.Event()

    def make(self, given: Exchange) -> TraceRecord | None:
        self.entered.set()
        assert self.opened.wait(20.0)
        return record_of(given)


def test_everything_that_fits_is_on_disk_after_close(tmp_path: Path) -> None:
    writer = TraceWriter(record_of, files(tmp_path), queue_records=1000)
    assert all(writer.put(exchange(b"%d" % number)) for number in range(500))
    writer.close()
    assert written(tmp_path) == [str(number) for number in range(500)]
    assert (writer.counts.written, writer.counts.dropped_full, writer.waiting) == (500, 0, 0)


@pytest.mark.parametrize(("records", "size_bytes", "fit"), [(3, 1 << 20, 3), (100, 3 * 2100, 3)])
def test_a_full_queue_drops_and_counts_and_never_waits(tmp_path: Path, records: int, size_bytes: int, fit: int) -> None:
    gate = Gate()
    writer = TraceWriter(gate.make, files(tmp_path), queue_records=records, queue_bytes=size_bytes)
    writer.put(exchange(b"first"))
    assert gate.entered.wait(20.0)
    taken = [writer.put(exchange(b"%d" % number)) for number in range(10)]
    gate.opened.set()  # the queue was full and shut, and every put returned
    writer.close()
    assert taken == [True] * fit + [False] * (10 - fit)
    assert writer.counts.dropped_full == 10 - fit
    assert written(tmp_path) == ["first", *(str(number) for number in range(fit))]


def test_after_close_everything_is_dropped_and_counted(tmp_path: Path) -> None:
    writer = TraceWriter(record_of, files(tmp_path), queue_records=10)
    writer.close()
    assert not writer.put(exchange())
    assert writer.counts.dropped_full == 1


def test_what_cannot_be_recorded_is_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    writer = TraceWriter(record_of, files(tmp_path), queue_records=10)
    for body in (b"a", b"none", b"odd", b"b"):
        writer.put(exchange(body))
    writer.close()
    assert written(tmp_path) == ["a", "b"]
    assert (writer.counts.without_prompt, writer.counts.dropped_error) == (1, 1)


def test_a_disk_that_refuses_is_counted_and_tried_again(tmp_path: Path) -> None:
    kept = files(tmp_path)
    real, failures = kept.append, [OSError(errno.ENOSPC, "full")]

    def append(lines: bytes, now_s: float) -> None:
        if failures:
            raise failures.pop()
        real(lines, now_s)

    kept.append = append  # type: ignore[method-assign]
    writer = TraceWriter(record_of, kept, queue_records=10)
    writer.put(exchange(b"lost"))
    while writer.counts.dropped_error == 0:
        time.sleep(0.001)
    writer.put(exchange(b"kept"))
    writer.close()
    assert written(tmp_path) == ["kept"]


def test_half_a_batch_on_a_full_disk_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = files(tmp_path)
    kept.append(b"first\n", 0.0)
    real: Callable[[int, memoryview], int] = os.write
    calls = []

    def write(handle: int, data: memoryview) -> int:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "full")
        return real(handle, data[:3])

    monkeypatch.setattr("semgate.proxy.trace_file.os.write", write)
    with pytest.raises(OSError):
        kept.append(b"second\n", 0.0)
    monkeypatch.undo()
    kept.append(b"third\n", 0.0)
    kept.close()
    (path,) = tmp_path.glob("trace-*.jsonl")
    assert path.read_bytes() == b"first\nthird\n"


def test_files_begin_anew_by_size_and_by_age_and_old_ones_go(tmp_path: Path) -> None:
    kept = files(tmp_path, rotate_bytes=10, rotate_seconds=100.0, kept=3)
    for number in range(4):
        kept.append(b"%09d\n" % number, float(number))  # each fills its file
    kept.append(b"a\n", 4.0)
    kept.append(b"b\n", 4.0 + 99.0)
    kept.append(b"c\n", 4.0 + 101.0)
    kept.close()
    contents = [path.read_bytes() for path in sorted(tmp_path.glob("trace-*.jsonl"))]
    assert contents == [b"000000003\n", b"a\nb\n", b"c\n"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"a": 1}\n{"b"', b'{"a": 1}\n'),
        (b'{"a": 1}\n', b'{"a": 1}\n'),
        (b'{"torn', b""),
        (b"", b""),
        (b"x\n" + b"y" * 3_000_000, b"x\n"),
    ],
)
def test_a_torn_last_line_is_cut_off(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "trace-20260101T000000Z-1-0001.jsonl"
    path.write_bytes(before)
    assert mend_torn_files(tmp_path) == (before != after)
    assert path.read_bytes() == after


def test_a_file_somebody_writes_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace-20260101T000000Z-1-0001.jsonl"
    path.write_bytes(b'{"half')
    with path.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert mend_torn_files(tmp_path) == 0
    assert mend_torn_files(tmp_path) == 1


def test_foreign_files_are_never_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_bytes(b"half")
    assert mend_torn_files(tmp_path) == 0
    kept = files(tmp_path, rotate_bytes=1, kept=1)
    for _ in range(3):
        kept.append(b"x\n", 0.0)
    kept.close()
    assert (tmp_path / "notes.jsonl").read_bytes() == b"half"
