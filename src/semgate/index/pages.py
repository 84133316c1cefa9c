"""Large arrays of zeros whose pages are mapped one by one, when first written, and returned to the system at once.

The heap clears memory it reuses, 2 ms per 8 MB, and copies arrays that grow; huge pages are cleared 2 MB at a time
wherever a hash falls. Called by the tables of this package.
"""

from __future__ import annotations

import mmap
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

MIN_BYTES: Final = 1 << 18


def zeros(shape: tuple[int, ...], kind: DTypeLike) -> NDArray[Any]:
    """As ``np.zeros``."""
    count = int(np.prod(shape))
    size_bytes = count * np.dtype(kind).itemsize
    if size_bytes < MIN_BYTES:
        return np.zeros(shape, kind)
    pages = mmap.mmap(-1, size_bytes)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, kind, count).reshape(shape)
