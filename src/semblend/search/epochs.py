"""Readers without locks: what a writer removes is reused only when no reader can still see it.

A reader notes the epoch in which it started. A writer unlinks first, then retires under a new epoch; the retired things
are released once every reader still running started in that epoch or later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Epochs:
    def __init__(self) -> None:
        self._epoch = 0
        self._readers: dict[int, int] = {}  # thread -> epoch it started in; single dictionary operations are atomic
        self._retired: deque[tuple[int, Callable[[], None]]] = deque()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keep what is visible now until the block ends. May be nested: the outermost block counts."""
        thread = threading.get_ident()
        if thread in self._readers:
            yield
            return
        try:
            self._readers[thread] = self._epoch
            yield
        finally:
            self._readers.pop(thread, None)

    def forget_readers(self) -> None:
        """After a fork: the threads that were reading exist only in the parent."""
        self._readers.clear()

    def retire(self, release: Callable[[], None]) -> None:
        """Call ``release`` once no reader can see the retired thing. Writers only, under their lock."""
        self._epoch += 1
        self._retired.append((self._epoch, release))

    def release_unseen(self) -> None:
        readers = tuple(self._readers.copy().values())
        oldest = min(readers, default=self._epoch)
        while self._retired and self._retired[0][0] <= oldest:
            self._retired.popleft()[1]()

    def release_all(self) -> None:
        """Wait for the current readers. A look-up takes milliseconds; a writer may wait for it, never the reverse."""
        if threading.get_ident() in self._readers:
            raise RuntimeError("a donor cannot be registered or forgotten from inside a look-up")
        self.release_unseen()
        while self._retired:
            time.sleep(0.0001)
            self.release_unseen()
