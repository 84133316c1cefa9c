"""A column that grows: amortised appends into one array, doubled when full."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

S = TypeVar("S", bound=np.generic)


class Column(Generic[S]):
    """Costs the array's bytes, at most twice over while it grows."""

    def __init__(self, dtype: type[S]) -> None:
        self._array: NDArray[S] = np.empty(1024, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, value: float) -> None:
        self._make_room(1)
        self._array[self._length] = value
        self._length += 1

    def extend(self, values: NDArray[S]) -> None:
        self._make_room(len(values))
        self._array[self._length : self._length + len(values)] = values
        self._length += len(values)

    def array(self) -> NDArray[S]:
        return self._array[: self._length].copy()

    def _make_room(self, more: int) -> None:
        needed = self._length + more
        if needed > len(self._array):
            grown: NDArray[S] = np.empty(max(needed, 2 * len(self._array)), self._array.dtype)
            grown[: self._length] = self._array[: self._length]
            self._array = grown
