"""Numbers a publisher's messages and keeps the last of them for those who missed some.

Messages as bytes go in; what came after a number, as far as it is kept, comes out. Used by the announcer's
sockets, on its thread. Bounded by ``batches``; the bytes are those of the messages.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator


class ReplayBuffer:
    """Numbers begin with the microseconds of the clock: a publisher that starts again never goes on, by chance, where
    its last run stopped, so that nobody can take the messages of two runs for one stream."""

    def __init__(self, batches: int, first: int | None = None) -> None:
        self.first = time.time_ns() // 1_000 if first is None else first
        self._next = self.first
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=batches)

    @property
    def oldest(self) -> int:
        """The first that can still be repeated."""
        return self._kept[0][0] if self._kept else self._next

    def add(self, payload: bytes) -> int:
        """The number of the message."""
        number = self._next
        self._next += 1
        self._kept.append((number, payload))
        return number

    def since(self, start: int) -> Iterator[tuple[int, bytes]]:
        return ((number, payload) for number, payload in self._kept if number >= start)

    def lacks(self, start: int) -> bool:
        """Whether something was said from ``start`` on that cannot be repeated."""
        return max(start, self.first) < self.oldest
