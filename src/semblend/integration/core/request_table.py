"""Requests by id, bounded: an engine that never reports the end of some requests must not make the table grow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from semblend.integration.core.request_record import RequestRecord

MAX_RECORDS: Final = 8192

Key = TypeVar("Key", bound=Hashable)
Record = TypeVar("Record", bound=RequestRecord)


class RequestTable(Generic[Key, Record]):
    """The oldest requests are forgotten first; those with an accepted claim never are, because their KV is in use."""

    def __init__(self, max_records: int = MAX_RECORDS) -> None:
        self._records: OrderedDict[Key, Record] = OrderedDict()
        self._max_records = max_records

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: Key) -> Record | None:
        return self._records.get(key)

    def add(self, key: Key, record: Record) -> None:
        """Add or replace a record. Beyond the limit, the oldest record without an accepted claim is dropped."""
        self._records[key] = record
        while len(self._records) > self._max_records:
            oldest = next((known for known, other in self._records.items() if not other.is_accepted), None)
            if oldest is None:
                return
            del self._records[oldest]

    def pop(self, key: Key) -> Record | None:
        return self._records.pop(key, None)

    def clear(self) -> None:
        self._records.clear()
