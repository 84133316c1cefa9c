"""The future, which only bounds may read: for every block reference the next request that asks for the block."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sembase.compiled import kernel

NEVER: Final = np.iinfo(np.int32).max


@kernel
def next_uses(offsets: NDArray[np.int64], nodes: NDArray[np.int32], node_count: int) -> NDArray[np.int32]:
    """4 bytes per reference. A block named twice in one request counts from the later request."""
    coming = np.full(node_count, 2147483647, np.int32)
    found = np.empty(len(nodes), np.int32)
    for request in range(len(offsets) - 2, -1, -1):
        for at in range(offsets[request], offsets[request + 1]):
            found[at] = coming[nodes[at]]
        for at in range(offsets[request], offsets[request + 1]):
            coming[nodes[at]] = request
    return found
