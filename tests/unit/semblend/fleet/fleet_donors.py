"""Small donors with known KV, and their keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from semblend.fleet.donor_object import KvBytes, RowShape
from semblend.fleet.keys import SpaceKeys

SECRET = b"a secret of the fleet, 32 bytes."
SHAPE = RowShape(layers=3, sides=2, heads=2, row_bytes=8)
KEYS = SpaceKeys.derive(SECRET, "tenant one")
WRITER = bytes(range(16))


def tokens_of(seed: int, length: int) -> NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(0, 50_000, length, dtype=np.uint32)


def kv_of(seed: int, tokens: int, shape: RowShape = SHAPE) -> KvBytes:
    size = (shape.layers, shape.sides, tokens, shape.heads, shape.row_bytes)
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
