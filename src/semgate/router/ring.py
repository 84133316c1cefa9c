"""The latest decisions in memory, found by request id: about 1.5 KB each, at most ``capacity`` of them."""

from __future__ import annotations

from collections import OrderedDict

from semgate.router.decision_record import DecisionRecord


class DecisionRing:
    """O(1) per request. A request id used twice keeps its latest decision."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[str, DecisionRecord] = OrderedDict()

    def add(self, record: DecisionRecord) -> None:
        if self._capacity == 0:
            return
        self._kept.pop(record.request_id, None)
        self._kept[record.request_id] = record
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)

    def get(self, request_id: str) -> DecisionRecord | None:
        return self._kept.get(request_id)

    def latest(self, count: int) -> list[DecisionRecord]:
        """Newest first."""
        kept = reversed(self._kept.values())
        return [record for record, _ in zip(kept, range(count), strict=False)]

    def __len__(self) -> int:
        return len(self._kept)
