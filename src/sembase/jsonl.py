"""JSON lines to files that are rotated and bounded; what cannot be written is counted, never raised to the caller.

``SharedLog`` writes at once, into one named file with a backup: for events, where a reader follows the file.
``QueuedLog`` writes in a thread of its own, into numbered files: for servers, whose event loop must not wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_BATCH: Final = 64
_LOOK_BACK_BYTES: Final = 1 << 20


class LineFile:
    """Appends whole lines to one open file. A file is left after ``max_bytes`` or ``max_seconds``; a longer line still
    gets a file of its own. Subclasses open the files. ``now_s`` is any monotonic clock."""

    def __init__(self, max_bytes: int, max_seconds: float = math.inf) -> None:
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._handle: int | None = None
        self._size_bytes = 0
        self._opened_s = 0.0

    def append(self, lines: bytes, now_s: float = 0.0) -> None:
        """All of ``lines`` or, with an OSError, nothing of them."""
        if self._handle is None:
            self._begin(now_s)
        if self._size_bytes and len(lines) > self.room_bytes(now_s):
            self.close()
            self._leave()
            self._begin(now_s)
        assert self._handle is not None
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[os.write(self._handle, rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self._size_bytes)
            raise
        self._size_bytes += len(lines)

    def room_bytes(self, now_s: float) -> int:
        """What fits into the open file; nothing, once it is too old."""
        is_old = now_s - self._opened_s >= self._max_seconds
        return 0 if is_old else self._max_bytes - self._size_bytes

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _begin(self, now_s: float) -> None:
        self._handle = self._open()
        self._size_bytes = os.fstat(self._handle).st_size
        self._opened_s = now_s

    def _open(self) -> int:
        raise NotImplementedError

    def _leave(self) -> None:
        """Called between closing a full file and opening the next."""


class FileWithBackup(LineFile):
    """``path``, continued where an earlier process stopped; a full file replaces ``<path>.1``."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._path = path

    def _open(self) -> int:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def _leave(self) -> None:
        self._path.replace(self._path.with_name(self._path.name + ".1"))


class NumberedFiles(LineFile):
    """``<prefix>-<time>-<pid>-<n>.jsonl`` in ``folder``, readable by this user only; the oldest are removed.

    Open files are locked, so that processes may share a folder. Disk: at most ``max_files`` times ``max_bytes``.
    """

    def __init__(
        self, folder: Path, prefix: str, *, max_bytes: int, max_files: int, max_seconds: float = math.inf
    ) -> None:
        super().__init__(max_bytes, max_seconds)
        self._folder = folder
        self._prefix = prefix
        self._max_files = max_files
        self._number = 0

    def close(self) -> None:
        try:
            if self._handle is not None:
                os.fsync(self._handle)
        finally:
            super().close()

    def _open(self) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        path = self._folder / f"{self._prefix}-{stamp}-{os.getpid()}-{self._number:04d}.jsonl"
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        files = sorted(self._folder.glob(f"{self._prefix}-*.jsonl"))
        for old in files[: max(0, len(files) - self._max_files)]:
            old.unlink(missing_ok=True)
        return handle


class SharedLog:
    """Lines from any thread, written at once. ``lost`` counts those that could not be written."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.lost = 0
        self._file = FileWithBackup(path, max_bytes)
        self._lock = threading.Lock()

    def write(self, line_of: Callable[[], str]) -> None:
        """``line_of`` is called under the lock, so that lines are in the order in which they are made."""
        with self._lock:
            line = line_of() + "\n"
            try:
                self._file.append(line.encode())
            except OSError:
                self.lost += 1
                self._close()

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


@dataclass(slots=True)
class LogCounts:
    """Read by metrics; written under the queue's lock or by the thread alone."""

    written: int = 0
    skipped: int = 0
    dropped_full: int = 0
    dropped_error: int = 0


class QueuedLog(Generic[T]):
    """Items are handed over without waiting (about 1 us); one thread makes lines of them and writes.

    The queue holds at most ``max_items``, and ``max_bytes`` as ``bytes_of`` counts them; the excess is dropped and
    counted. ``line_of`` may return None: the item is skipped.
    """

    def __init__(
        self,
        name: str,
        files: LineFile,
        line_of: Callable[[T], bytes | None],
        *,
        max_items: int,
        max_bytes: float = math.inf,
        bytes_of: Callable[[T], int] = lambda _: 0,
    ) -> None:
        self.counts = LogCounts()
        self._files = files
        self._line_of = line_of
        self._bytes_of = bytes_of
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._queue: deque[T] = deque()
        self._queued_bytes = 0
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def start(self) -> None:
        self._thread.start()

    def put(self, item: T) -> bool:
        """False: dropped and counted."""
        size_bytes = self._bytes_of(item)
        with self._changed:
            is_full = len(self._queue) >= self._max_items or self._queued_bytes + size_bytes > self._max_bytes
            if is_full or self._is_closing:
                self.counts.dropped_full += 1
                return False
            self._queue.append(item)
            self._queued_bytes += size_bytes
            if len(self._queue) == 1:
                self._changed.notify()
        return True

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Writes what is queued; what is not on disk after the timeout is counted as dropped."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        with self._changed:
            self.counts.dropped_full += len(self._queue)
            self._queue.clear()

    def _run(self) -> None:
        while batch := self._take():
            lines = [line for item in batch if (line := self._line(item)) is not None]
            while lines:
                lines = self._append(lines)
        try:
            self._files.close()
        except OSError:
            self.counts.dropped_error += 1

    def _take(self) -> list[T]:
        with self._changed:
            while not self._queue and not self._is_closing:
                self._changed.wait()
            batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            self._queued_bytes -= sum(self._bytes_of(item) for item in batch)
            return batch

    def _line(self, item: T) -> bytes | None:
        try:
            line = self._line_of(item)
        except (ValueError, TypeError, RecursionError):  # an unforeseen item must not end the thread
            self.counts.dropped_error += 1
            return None
        self.counts.skipped += line is None
        return line

    def _append(self, lines: list[bytes]) -> list[bytes]:
        """Writes as many as fit into the current file, at least one; returns the rest."""
        now_s = time.monotonic()
        room_bytes = self._files.room_bytes(now_s)
        fitting, size_bytes = 1, len(lines[0])
        while fitting < len(lines) and size_bytes + len(lines[fitting]) <= room_bytes:
            size_bytes += len(lines[fitting])
            fitting += 1
        try:
            self._files.append(b"".join(lines[:fitting]), now_s)
        except OSError:  # a full disk must not stop the server
            self.counts.dropped_error += fitting
        else:
            self.counts.written += fitting
        return lines[fitting:]


def cut_torn_lines(folder: Path, prefix: str) -> int:
    """Cuts off the half-written last line that a crash left, in files that are not open; returns how many had one."""
    torn = 0
    for path in folder.glob(f"{prefix}-*.jsonl"):
        with contextlib.suppress(OSError), path.open("r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end = stream.seek(0, os.SEEK_END)
            whole = _end_of_last_line(stream.fileno(), end)
            if whole < end:
                stream.truncate(whole)
                torn += 1
    return torn


def _end_of_last_line(handle: int, end: int) -> int:
    while end > 0:
        start = max(0, end - _LOOK_BACK_BYTES)
        found = os.pread(handle, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
