"""Writers whose bytes failed: after ``MAX_STRIKES`` their donors are not fetched for a while.

A strike costs reuse and nothing else. Who can write to the store can name any writer, so a bar ends by itself.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

MAX_STRIKES: Final = 3
BAR_SECONDS: Final = 600.0
MAX_WRITERS: Final = 4096


class Strikes:
    """Thread-safe. Remembers at most ``MAX_WRITERS`` writers, the latest offenders."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, tuple[int, float]] = OrderedDict()  # strikes, and the time of the last

    def strike(self, writer: bytes) -> None:
        with self._lock:
            count, _ = self._current(writer)
            self._found[writer] = (count + 1, self._clock())
            self._found.move_to_end(writer)
            if len(self._found) > MAX_WRITERS:
                self._found.popitem(last=False)

    def is_barred(self, writer: bytes) -> bool:
        with self._lock:
            return self._current(writer)[0] >= MAX_STRIKES

    def _current(self, writer: bytes) -> tuple[int, float]:
        count, last = self._found.get(writer, (0, 0.0))
        if count and self._clock() - last > BAR_SECONDS:
            del self._found[writer]
            return 0, 0.0
        return count, last
