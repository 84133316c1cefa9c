"""What every index of leading blocks can do: the placement knows this and no more."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class PrefixIndex(Protocol):
    """Slots number the replicas from 0; a slot that was removed is handed out again."""

    def longest(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Leading blocks held, per slot."""

    def blocks(self, slot: int) -> int:
        """Blocks held by one replica."""
