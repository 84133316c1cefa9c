"""The state of one event stream that outlives a router: what was announced, and up to which message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Entries = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint16]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """``newest``: digest of message ``next_seq`` - 1. ``hashes``, ``keys`` and ``copies`` are oldest first, unless
    ``order`` puts them in order; that may run in another thread."""

    next_seq: int
    newest: bytes
    group: int | None
    block_tokens: int | None
    adapters: tuple[str, ...]
    hashes: NDArray[np.uint64]
    keys: NDArray[np.uint64]
    copies: NDArray[np.uint16]
    order: Callable[[], Entries] | None = None

    def ordered(self) -> Entries:
        return (self.hashes, self.keys, self.copies) if self.order is None else self.order()
