"""Events to a JSON Lines file, for the bench and for explaining a request later. Called by adapters.

Writing never fails a request. Lines that cannot be written are counted, and a gap in the sequence numbers shows them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sembase.jsonl import SharedLog
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
        self._engine = engine
        self._clock_ms = clock_ms
        self._sequence = 0
        self._log = SharedLog(path, max_bytes)

    @property
    def lost(self) -> int:
        return self._log.lost

    def write(self, event: Event) -> None:
        self._log.write(lambda: self._line_of(event))

    def close(self) -> None:
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _line_of(self, event: Event) -> str:
        line = encode_line(EventLine(event, self._engine, self._sequence, self._clock_ms()))
        self._sequence += 1  # also for a lost line: a reader sees the gap
        return line
