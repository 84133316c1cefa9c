"""How full the cache was and what its policy had learnt, over time: at most 512 evenly spread samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MOST = 512


class Timeline:
    """Samples every `stride` requests; when full it forgets every second one and doubles the stride."""

    def __init__(self) -> None:
        self.stride = 1
        self._served: list[int] = []
        self._used: list[int] = []
        self._weights: list[NDArray[np.float64]] = []

    def expect(self, requests: int) -> None:
        """Before the first sample: a stride that fits this many requests."""
        if not self._served:
            self.stride = max(1, -(-requests // (_MOST // 2)))

    def add(self, served: int, used: int, weights: NDArray[np.float64] | None) -> None:
        self._served.append(served)
        self._used.append(used)
        if weights is not None:
            self._weights.append(np.array(weights, np.float64))
        if len(self._served) >= _MOST:
            self.stride *= 2
            self._served, self._used = self._served[1::2], self._used[1::2]
            self._weights = self._weights[1::2]

    def used(self) -> NDArray[np.int64]:
        return np.array([self._served, self._used], np.int64).T.reshape(-1, 2)

    def weights(self) -> NDArray[np.float64] | None:
        return np.array(self._weights) if self._weights else None
