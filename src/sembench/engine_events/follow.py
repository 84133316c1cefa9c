"""A growing event file -> the events that are new since the last look. Called by the live runners and the bench's CLI.

The writer may be in the middle of a line, may move its file away at a size limit, or may begin it anew.
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
    """``read()`` gives each event once. What is no event is counted in ``damaged``, and never stops the reading.

    ``damaged`` counts lines; ``missing`` the events that were numbered and never seen (the writer's disk was full, a
    line was damaged, the file moved away twice between two looks); ``restarts`` how often it began anew.
    """

    def __init__(self, path: Path) -> None:
        self.damaged = 0
        self.missing = 0
        self.restarts = 0
        self._path = path
        self._stream: BinaryIO | None = None
        self._identity: tuple[int, int] | None = None  # of the open file
        self._offset = 0
        self._rest = b""  # the beginning of a line whose end is not written yet
        self._is_overlong = False  # the line being read is longer than any event and is thrown away
        self._sequence = Sequence()

    def read(self) -> list[EventLine]:
        """The events that were completed since the last call; none while there is no file."""
        events: list[EventLine] = []
        while True:
            if self._stream is None and not self._open():
                return events
            self._drain(events)
            if not self._has_moved():
                return events
            self._turn_page(events)

    def close(self) -> None:
        """Give the file back. A follower that is dropped without it does the same."""
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
        """Everything behind the offset. A file shorter than the offset was truncated: it is read from its start."""
        assert self._stream is not None
        if os.fstat(self._stream.fileno()).st_size < self._offset:
            self._begin_anew()
        self._stream.seek(self._offset)
        while chunk := self._stream.read(_CHUNK_BYTES):
            self._offset += len(chunk)
            self._take(chunk, events)

    def _has_moved(self) -> bool:
        """Whether another file stands under the name now. A name without a file may yet get one: nothing is lost."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) != self._identity

    def _turn_page(self, events: list[EventLine]) -> None:
        """To the file that took the name; what was written to the old one in between is read first."""
        self._drain(events)
        self.close()
        self._begin_anew()

    def _begin_anew(self) -> None:
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
