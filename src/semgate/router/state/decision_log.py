"""Decision records to ``decisions-<time>-<pid>-<n>.jsonl``: one writer thread, bounded queue and disk, counted drops.

In: records from the event loop, never waiting; out: whole lines, in at most ``files`` files of ``file_bytes`` each.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from sembase.errors import ConfigurationError, ContractError
from semgate.router.state.decisions import DecisionRecord, record_from_json

PATTERN: Final = "decisions-*.jsonl"
QUEUE_RECORDS: Final = 10_000


class DecisionLog:
    """``add`` costs a queue put (about 1 us); JSON and disk are the thread's work. 10,000 waiting records: ~15 MB."""

    def __init__(self, folder: Path, *, files: int, file_bytes: int, queue_records: int = QUEUE_RECORDS) -> None:
        self._folder = folder
        self._files = files
        self._file_bytes = file_bytes
        self._waiting: queue.Queue[DecisionRecord | None] = queue.Queue(queue_records)
        self._thread = threading.Thread(target=self._write_all, name="semgate-decisions", daemon=True)
        self._number = 0
        self.dropped = 0
        self.failed = 0

    def start(self) -> None:
        if self._files == 0:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"decisions cannot be written to {self._folder}: {error.strerror}; give --routing-output-dir a folder "
                "of yours or --decision-files 0"
            ) from None
        self._thread.start()

    def add(self, record: DecisionRecord) -> None:
        if self._files == 0:
            return
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Writes what waits, then ends the thread."""
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()

    def _write_all(self) -> None:
        stream: IO[bytes] | None = None
        try:
            while (record := self._waiting.get()) is not None:
                try:
                    stream = self._written(record, stream)
                except OSError:
                    self.failed += 1  # a full disk must not stop the routing; the counter is a metric
                    _close(stream)
                    stream = None
        finally:
            _close(stream)

    def _written(self, record: DecisionRecord, stream: IO[bytes] | None) -> IO[bytes] | None:
        if stream is None:
            stream = self._next_file()
        stream.write(record.as_line())
        if self._waiting.empty():
            stream.flush()
        if stream.tell() < self._file_bytes:
            return stream
        _close(stream)
        return None

    def _next_file(self) -> IO[bytes]:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self._number += 1
        path = self._folder / f"decisions-{stamp}-{os.getpid()}-{self._number:04d}.jsonl"
        kept = sorted(self._folder.glob(PATTERN))
        for old in kept[: max(0, len(kept) + 1 - self._files)]:
            old.unlink(missing_ok=True)
        # They hold digests of tenants and sessions: for the router's user only.
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def find_decisions(folder: Path, request_id: str, limit: int = 10) -> list[DecisionRecord]:
    """Newest first. A torn last line, of a process that was killed, is passed over."""
    found: list[DecisionRecord] = []
    for path in sorted(folder.glob(PATTERN), reverse=True):
        found += reversed(list(_matching(path, request_id)))
        if len(found) >= limit:
            break
    return found[:limit]


def _matching(path: Path, request_id: str) -> Iterator[DecisionRecord]:
    needle = json.dumps(request_id).encode()
    with path.open("rb") as stream:
        for line in stream:
            if needle not in line:
                continue
            with contextlib.suppress(ValueError, ContractError):
                record = record_from_json(json.loads(line))
                if record.request_id == request_id:
                    yield record


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.close()
