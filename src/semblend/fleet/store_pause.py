"""When is a store that failed asked again? Failures and answers in, yes or no out.

After a failure the store is not asked for ``FIRST_PAUSE_S``, after each further one twice as long, up to
``MAX_PAUSE_S``. When a pause is over one request probes the store while the others still do without it. An answer,
also that a donor is missing, ends the pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0


class StorePause:
    """Of one engine. A probe without a result after ``probe_s`` is forgotten, and the next request probes.

    Changed on one thread and read on others; a race costs one request a probe or a donor and nothing else.
    """

    def __init__(self, probe_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._probe_s = probe_s
        self._clock = clock
        self._pause_s = 0.0  # the last one; 0: the store has answered since
        self._failed_s = 0.0
        self._until = 0.0

    @property
    def is_on(self) -> bool:
        return bool(self._pause_s) and self._clock() < self._until

    def asked(self) -> None:
        """The store is asked. After a failure this is the probe, and further requests do not ask until its result."""
        if self._pause_s:
            self._until = self._clock() + self._probe_s

    def failed(self, asked_s: float) -> None:
        """The store could not be reached, or did not answer in time, when it was asked at ``asked_s``.

        Requests that asked before the last failure report the same outage: they do not lengthen its pause.
        """
        if self._pause_s and asked_s < self._failed_s:
            return
        self._failed_s = self._clock()
        self._pause_s = min(MAX_PAUSE_S, 2 * self._pause_s) or FIRST_PAUSE_S
        self._until = self._failed_s + self._pause_s

    def answered(self) -> None:
        self._pause_s = 0.0
