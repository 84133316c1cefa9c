"""Request bodies in memory, bounded for the whole process: each counts from its arrival until it is dropped.

Used by proxy and router. Counts the bytes as received; joining the pieces briefly takes twice a body's size.
"""

from __future__ import annotations

from typing import Final

DEFAULT_MAX_HELD_BYTES: Final = 512 * 1024 * 1024


class BodiesFull(Exception):  # noqa: N818  (a state; the client gets status 503)
    """The bodies of all requests together are as large as the process may hold."""


class BodyBudget:
    """A single body within its own limit always fits."""

    __slots__ = ("held_bytes", "max_bytes")

    def __init__(self, max_body_bytes: int, max_bytes: int = DEFAULT_MAX_HELD_BYTES) -> None:
        self.max_bytes = max(max_bytes, max_body_bytes)
        self.held_bytes = 0


class HeldBody:
    """One body. Its owner calls ``drop`` when it is no longer needed; further calls do nothing."""

    __slots__ = ("_budget", "_counted_bytes", "data")

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._counted_bytes = 0
        self.data = b""

    def count(self, more_bytes: int) -> None:
        budget = self._budget
        if budget.held_bytes + more_bytes > budget.max_bytes:
            raise BodiesFull
        budget.held_bytes += more_bytes
        self._counted_bytes += more_bytes

    def drop(self) -> None:
        self._budget.held_bytes -= self._counted_bytes
        self._counted_bytes = 0
        self.data = b""
