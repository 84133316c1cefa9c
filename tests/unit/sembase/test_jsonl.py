"""Files of JSON lines: whole lines, rotation by size and age, torn lines, a full disk; and the logs that write them."""

from __future__ import annotations

import errno
import fcntl
import math
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.jsonl import FileWithBackup, NumberedFiles, QueuedLog, SharedLog, cut_torn_lines


def files(
    folder: Path, *, max_bytes: int = 1 << 20, max_seconds: float = math.inf, max_files: int = 16
) -> NumberedFiles:
    return NumberedFiles(folder, "trace", max_bytes=max_bytes, max_files=max_files, max_seconds=max_seconds)


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 60))
def test_no_file_is_larger_than_its_limit_unless_it_holds_one_line(lengths: list[int], max_bytes: int) -> None:
    with TemporaryDirectory() as name:
        lines = [b"x" * (length - 1) + b"\n" for length in lengths]
        log: QueuedLog[bytes] = QueuedLog(
            "test", files(Path(name), max_bytes=max_bytes, max_files=99), bytes, max_items=99
        )
        assert all(log.put(line) for line in lines)
        log.start()
        log.close()
        found = [path.read_bytes() for path in sorted(Path(name).iterdir())]
        assert b"".join(found) == b"".join(lines)
        assert all(len(content) <= max_bytes or content.count(b"\n") == 1 for content in found)
        assert log.counts.written == len(lines)


def test_a_file_with_a_backup_keeps_the_latest_lines(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "events.jsonl"
    for number in range(5):
        file = FileWithBackup(path, 4)  # a new process each time
        file.append(b"%d\n" % number)
        file.close()
    assert (path.with_name("events.jsonl.1").read_bytes(), path.read_bytes()) == (b"2\n3\n", b"4\n")


def test_a_line_that_cannot_be_written_is_counted_not_raised(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = SharedLog(tmp_path / "file" / "events.jsonl", 100)
    log.write(lambda: "a")
    log.close()
    assert log.lost == 1


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

    monkeypatch.setattr("sembase.jsonl.os.write", write)
    with pytest.raises(OSError):
        kept.append(b"second\n", 0.0)
    monkeypatch.undo()
    kept.append(b"third\n", 0.0)
    kept.close()
    (path,) = tmp_path.glob("trace-*.jsonl")
    assert path.read_bytes() == b"first\nthird\n"


def test_files_rotate_by_size_and_by_age_and_old_ones_go(tmp_path: Path) -> None:
    kept = files(tmp_path, max_bytes=10, max_seconds=100.0, max_files=3)
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
    assert cut_torn_lines(tmp_path, "trace") == (before != after)
    assert path.read_bytes() == after


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "trace-20260101T000000Z-1-0001.jsonl"
    path.write_bytes(b'{"half')
    with path.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert cut_torn_lines(tmp_path, "trace") == 0
    assert cut_torn_lines(tmp_path, "trace") == 1


def test_foreign_files_are_never_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_bytes(b"half")
    assert cut_torn_lines(tmp_path, "trace") == 0
    kept = files(tmp_path, max_bytes=1, max_files=1)
    for _ in range(3):
        kept.append(b"x\n", 0.0)
    kept.close()
    assert (tmp_path / "notes.jsonl").read_bytes() == b"half"
