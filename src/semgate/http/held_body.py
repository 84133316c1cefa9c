"""Request bodies in memory, bounded for the whole process: each counts from its arrival until it is dropped.

Used by proxy and router. Counts the bytes as received; joining the pieces briefly takes twice a body's size. The parsed
form of a body, which can be thirty times larger, is counted before it is made, by an upper estimate.
"""

from __future__ import annotations

from typing import Final

from semgate.http.faults import BODIES_FULL, RequestRefused

DEFAULT_MAX_HELD_BYTES: Final = 512 * 1024 * 1024


class BodyBudget:
    """A single body within its own limit always fits. Parsed forms take at most a quarter of the budget."""

    __slots__ = ("held_bytes", "max_bytes", "max_parsed_bytes", "parsed_bytes")

    def __init__(self, max_body_bytes: int, max_bytes: int = DEFAULT_MAX_HELD_BYTES) -> None:
        self.max_bytes = max(max_bytes, max_body_bytes)
        self.max_parsed_bytes = max(self.max_bytes // 4, 1)
        self.held_bytes = 0
        self.parsed_bytes = 0


class HeldBody:
    """One body. Its owner calls ``drop`` when it is no longer needed; further calls do nothing."""

    __slots__ = ("_budget", "_counted_bytes", "_parsed_bytes", "data")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._counted_bytes = 0
        self._parsed_bytes = 0
        self.data = b""

    def count(self, more_bytes: int) -> None:
        budget = self._budget
        if budget.held_bytes + more_bytes > budget.max_bytes:
            raise RequestRefused(BODIES_FULL)
        budget.held_bytes += more_bytes
        self._counted_bytes += more_bytes

    def count_parsed(self, size_bytes: int) -> bool:
        """Whether there is room for the parsed form, which is then counted until `drop_parsed`."""
        budget = self._budget
        if budget.parsed_bytes + size_bytes > budget.max_parsed_bytes:
            return False
        if budget.held_bytes + size_bytes > budget.max_bytes:
            return False
        self._parsed_bytes += size_bytes
        budget.parsed_bytes += size_bytes
        budget.held_bytes += size_bytes
        return True

    def drop_parsed(self) -> None:
        self._budget.held_bytes -= self._parsed_bytes
        self._budget.parsed_bytes -= self._parsed_bytes
        self._parsed_bytes = 0

    def drop(self) -> None:
        self.drop_parsed()
        self._budget.held_bytes -= self._counted_bytes
        self._counted_bytes = 0
        self.data = b""
