"""Numbers a publisher's messages and keeps the last of them for subscribers that missed some.

Messages as bytes go in; those from a number on, as far as they are kept, come out. Used by the announcer's sockets, on
its thread. Bounded by ``batches``; the memory is that of the messages.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator


class ReplayBuffer:
    """Numbers start at the clock's microseconds, so that a restarted publisher never continues the numbers of its last
    run by chance and no subscriber takes two runs for one stream."""

    def __init__(self, batches: int, first: int | None = None) -> None:
        self.first = time.time_ns() // 1_000 if first is None else first
        self._next = self.first
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=batches)

    @property
    def oldest(self) -> int:
        """The first number that can still be repeated."""
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
        """Whether a message from ``start`` on can no longer be repeated."""
        return max(start, self.first) < self.oldest
