"""A directory of fleet donors inside one process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

MAX_ANCHORS: Final = 1 << 20
MAX_RECORDS: Final = 1 << 14


class MemoryDirectory:
    """Bounded: the entries announced longest ago are displaced."""

    def __init__(self, url: str = "", max_anchors: int = MAX_ANCHORS, max_records: int = MAX_RECORDS) -> None:
        self._lock = threading.Lock()
        self._max = (max_anchors, max_records)
        self._anchors: OrderedDict[tuple[bytes, int], str] = OrderedDict()
        self._records: OrderedDict[tuple[bytes, str], bytes] = OrderedDict()

    def look_up(self, space: bytes, anchors: NDArray[np.uint64]) -> list[str | None]:
        with self._lock:
            return [self._anchors.get((space, anchor)) for anchor in anchors.tolist()]

    def records(self, space: bytes, donor_ids: Sequence[str]) -> list[bytes | None]:
        with self._lock:
            return [self._records.get((space, donor_id)) for donor_id in donor_ids]

    def announce(self, space: bytes, donor_id: str, record: bytes, anchors: NDArray[np.uint64]) -> None:
        with self._lock:
            self._records[space, donor_id] = record
            self._records.move_to_end((space, donor_id))
            for anchor in anchors.tolist():
                self._anchors[space, anchor] = donor_id
                self._anchors.move_to_end((space, anchor))
            while len(self._anchors) > self._max[0]:
                self._anchors.popitem(last=False)
            while len(self._records) > self._max[1]:
                self._records.popitem(last=False)

    def withdraw(self, space: bytes, donor_id: str) -> None:
        with self._lock:
            self._records.pop((space, donor_id), None)
