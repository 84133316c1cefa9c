"""A growing event file -> the events added since the last read. Called by the live runners and the bench's CLI.

The writer may be in the middle of a line, may rotate the file at a size limit, or may truncate it.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from sembench.engine_events.decode import Sequence, decode_event
from semblend.contract import EventLine

MAX_LINE_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 16


class EventFollower:
    """``read()`` returns each event once. Invalid lines are skipped and counted.

    ``damaged`` counts invalid lines. ``missing`` counts gaps in the sequence numbers (the writer's disk was full, a
    line was damaged, the file was rotated twice between two reads). ``restarts`` counts rotations and truncations.
    """

    def __init__(self, path: Path) -> None:
        self.damaged = 0
        self.missing = 0
        self.restarts = 0
        self._path = path
        self._stream: BinaryIO | None = None
        self._identity: tuple[int, int] | None = None  # of the open file
        self._offset = 0
        self._rest = b""  # start of a line whose end is not written yet
        self._is_overlong = False  # the current line exceeds MAX_LINE_BYTES and is discarded
        self._sequence = Sequence()

    def read(self) -> list[EventLine]:
        """Events completed since the last call; empty while the file does not exist."""
        events: list[EventLine] = []
        while True:
            if self._stream is None and not self._open():
                return events
            self._drain(events)
            if not self._has_moved():
                return events
            self._switch_file(events)

    def close(self) -> None:
        """Close the file. A follower that is garbage-collected closes it as well."""
        if self._stream is not None:
            self._close()
        self._stream = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> bool:
        try:
            self._stream = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return False
        self._close = weakref.finalize(self, self._stream.close)
        status = os.fstat(self._stream.fileno())
        self._identity = (status.st_dev, status.st_ino)
        self._offset = 0
        return True

    def _drain(self, events: list[EventLine]) -> None:
        """Read everything after the offset. A file shorter than the offset was truncated and is read from its start."""
        assert self._stream is not None
        if os.fstat(self._stream.fileno()).st_size < self._offset:
            self._restart()
        self._stream.seek(self._offset)
        while chunk := self._stream.read(_CHUNK_BYTES):
            self._offset += len(chunk)
            self._take(chunk, events)

    def _has_moved(self) -> bool:
        """Whether the path now names another file. If it names none, the writer may still create it: keep reading."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) != self._identity

    def _switch_file(self, events: list[EventLine]) -> None:
        """Read the rest of the rotated file, then start with the new one."""
        self._drain(events)
        self.close()
        self._restart()

    def _restart(self) -> None:
        self.restarts += 1
        self._offset = 0
        self.damaged += bool(self._rest) or self._is_overlong
        self._rest, self._is_overlong = b"", False

    def _take(self, chunk: bytes, events: list[EventLine]) -> None:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            whole, self._rest = self._rest + line, b""
            if self._is_overlong:
                self._is_overlong = False
                self.damaged += 1
            else:
                self._decode(whole, events)
        if not self._is_overlong:
            self._rest += rest
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest, self._is_overlong = b"", True

    def _decode(self, line: bytes, events: list[EventLine]) -> None:
        if not line.strip():
            return
        event = decode_event(line.decode("utf-8", errors="replace"))
        if event is None:
            self.damaged += 1
            return
        self.missing += self._sequence.gap_before(event)
        events.append(event)
