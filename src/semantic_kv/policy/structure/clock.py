"""The original's clock: ``max(clock + 1, timestamp)`` at every request, so that it always advances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from semantic_kv.policy.interface import REQUEST, Cache, View
from sembase.compiled import kernel_part


class Clock(NamedTuple):
    now_ms: NDArray[np.float64]  # one element
    request: NDArray[np.int64]  # one element: the request it was last set for


def make_clock() -> Clock:
    return Clock(np.zeros(1, np.float64), np.full(1, -1, np.int64))


@kernel_part
def clock_ms(cache: Cache, clock: Clock) -> float:
    """The time of the request being served."""
    if clock.request[0] != cache.counts[REQUEST]:
        clock.request[0] = cache.counts[REQUEST]
        clock.now_ms[0] = max(clock.now_ms[0] + 1.0, cache.now_ms[0])
    return float(clock.now_ms[0])


class PlainClock:
    def __init__(self, view: View) -> None:
        self._view = view
        self._request = -1
        self._now_ms = 0.0

    def now_ms(self) -> float:
        if self._request != self._view.request:
            self._request = self._view.request
            self._now_ms = max(self._now_ms + 1.0, self._view.now_ms)
        return self._now_ms
