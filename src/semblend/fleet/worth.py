"""Is a fetch worth its time? Bytes against the measured speed of the store, and the prefill that they save."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

KEPT: Final = 0.8  # of what is known, at each new measurement: the last five or so count
PROBE_SECONDS: Final = 30.0  # a store that was too slow gets another chance


class Pace:
    """Amount per second, the latest measurements most."""

    def __init__(self) -> None:
        self._amount = 0.0
        self._seconds = 0.0

    @property
    def per_second(self) -> float | None:
        return self._amount / self._seconds if self._seconds > 0.0 else None

    def add(self, amount: float, seconds: float) -> None:
        self._amount = KEPT * self._amount + amount
        self._seconds = KEPT * self._seconds + seconds


class FetchWorth:
    """Of one engine. What was never measured refuses nothing: the first fetch measures.

    Measured on one thread and asked on another; a race costs an estimate and nothing else.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reads = Pace()
        self._last_read: float | None = None

    def was_read(self, read_bytes: int, seconds: float) -> None:
        """A fetch has taken so long."""
        self._reads.add(read_bytes, seconds)
        self._last_read = self._clock()

    def is_worth(self, read_bytes: int, saved_ms: float) -> bool:
        """Whether reading so many bytes is faster than the prefill that it saves, 0 if that was not measured. One
        probe per ``PROBE_SECONDS``."""
        reads = self._reads.per_second
        if not reads or not saved_ms or read_bytes / reads < saved_ms / 1e3:
            return True
        now = self._clock()
        if self._last_read is not None and now - self._last_read < PROBE_SECONDS:
            return False
        self._last_read = now
        return True
