"""Events to a JSON Lines file, for the bench and for whoever must explain a request later. Called by adapters.

Writing never fails a request: what cannot be written is counted, and the count says how much of the stream is missing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from semblend.contract import Event, EventLine, encode_line

DEFAULT_MAX_BYTES: Final = 256 << 20


class EventLog:
    """Appends one line per event. At ``max_bytes`` the file moves to ``<name>.1`` and a new one begins."""

    def __init__(
        self,
        path: Path,
        engine: str,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        clock_ms: Callable[[], float] = lambda: time.time() * 1e3,
    ) -> None:
        self.lost = 0
        self._path = path
        self._engine = engine
        self._max_bytes = max_bytes
        self._clock_ms = clock_ms
        self._sequence = 0
        self._bytes = 0
        self._file: TextIO | None = None
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        with self._lock:
            line = encode_line(EventLine(event, self._engine, self._sequence, self._clock_ms())) + "\n"
            self._sequence += 1  # a lost line leaves a gap that a reader can see
            try:
                self._append(line)
            except OSError:
                self.lost += 1
                self._close()

    def close(self) -> None:
        with self._lock:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, line: str) -> None:
        size = len(line.encode())
        if self._file is not None and self._bytes + size > self._max_bytes:
            self._close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
            self._bytes = self._path.stat().st_size
        self._file.write(line)
        self._file.flush()
        self._bytes += size

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
