"""Trace files of one process: appended in whole lines, begun anew by size or age, old ones removed.

A crash can tear only the last line of a file; `mend_torn_files` cuts it off at the next start. Open files are locked,
so that two processes may share a folder. Used by `writer.py`, in its thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Final

PATTERN: Final = "trace-*.jsonl"
KEPT_FILES: Final = 256
_LOOK_BACK_BYTES: Final = 1 << 20


class TraceFiles:
    """``now_s`` is any monotonic clock. Disk: at most ``KEPT_FILES`` times ``rotate_bytes``, and one batch of lines."""

    def __init__(self, folder: Path, *, rotate_bytes: int, rotate_seconds: float, kept_files: int = KEPT_FILES) -> None:
        self._folder = folder
        self._rotate_bytes = rotate_bytes
        self._rotate_seconds = rotate_seconds
        self._kept_files = kept_files
        self._handle: int | None = None
        self._size_bytes = 0
        self._begun_s = 0.0
        self._number = 0

    def append(self, lines: bytes, now_s: float) -> None:
        """All of ``lines`` or, with an OSError, nothing of them."""
        if self._handle is None or self._is_full(now_s):
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

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def _is_full(self, now_s: float) -> bool:
        return self._size_bytes >= self._rotate_bytes or now_s - self._begun_s >= self._rotate_seconds

    def _begin(self, now_s: float) -> None:
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        path = self._folder / f"trace-{stamp}-{os.getpid()}-{self._number:04d}.jsonl"
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._size_bytes = os.fstat(self._handle).st_size
        self._begun_s = now_s
        self._remove_oldest()

    def _remove_oldest(self) -> None:
        files = sorted(self._folder.glob(PATTERN), key=lambda path: path.name)
        for path in files[: max(0, len(files) - self._kept_files)]:
            path.unlink(missing_ok=True)


def mend_torn_files(folder: Path) -> int:
    """Cuts the half-written last line off files nobody has open; returns how many had one."""
    torn = 0
    for path in folder.glob(PATTERN):
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
