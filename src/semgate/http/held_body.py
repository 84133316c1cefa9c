"""Request bodies in memory, bounded for the whole process: each counts from its head until it is dropped.

Used by proxy and router. Counts the announced bytes, or those received; joining the pieces briefly takes twice a
body's size. The parsed
form of a body, which can be thirty times larger, is counted before it is made, by an upper estimate.
"""

from __future__ import annotations

from typing import Final

from semgate.http.faults import BODIES_FULL, RequestRefused

DEFAULT_MAX_HELD_BYTES: Final = 512 * 1024 * 1024


class BodyBudget:
    """A tenant may hold as much as it leaves free: one takes at most half, a second one half of the rest, and so on.

    A single body within its own limit always fits. Parsed forms take at most a quarter of the budget.
    """

    __slots__ = ("_by_tenant", "held_bytes", "max_bytes", "max_parsed_bytes", "parsed_bytes")

    def __init__(self, max_body_bytes: int, max_bytes: int = DEFAULT_MAX_HELD_BYTES) -> None:
        self.max_bytes = max(max_bytes, 2 * max_body_bytes)
        self.max_parsed_bytes = max(self.max_bytes // 4, 1)
        self.held_bytes = 0
        self.parsed_bytes = 0
        self._by_tenant: dict[str, int] = {}

    @property
    def tenants(self) -> int:
        """That hold anything now."""
        return len(self._by_tenant)

    def take(self, tenant: str, size_bytes: int) -> bool:
        """Whether there is room."""
        own_bytes = self._by_tenant.get(tenant, 0) + size_bytes
        if own_bytes > self.max_bytes - self.held_bytes - size_bytes:
            return False
        self.held_bytes += size_bytes
        self._by_tenant[tenant] = own_bytes
        return True

    def give_back(self, tenant: str, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        own_bytes = self._by_tenant.pop(tenant, 0) - size_bytes
        if own_bytes:
            self._by_tenant[tenant] = own_bytes


class HeldBody:
    """One body. Its owner calls ``drop`` when it is no longer needed; further calls do nothing."""

    __slots__ = ("_budget", "_counted_bytes", "_parsed_bytes", "_tenant", "data")

    def __init__(self, budget: BodyBudget, tenant: str) -> None:
        self._budget = budget
        self._tenant = tenant
        self._counted_bytes = 0
        self._parsed_bytes = 0
        self.data = b""

    def count(self, more_bytes: int) -> None:
        if not self._budget.take(self._tenant, more_bytes):
            raise RequestRefused(BODIES_FULL)
        self._counted_bytes += more_bytes

    def count_parsed(self, size_bytes: int) -> bool:
        """Whether there is room for the parsed form, which is then counted until `drop_parsed`."""
        budget = self._budget
        if budget.parsed_bytes + size_bytes > budget.max_parsed_bytes:
            return False
        if not budget.take(self._tenant, size_bytes):
            return False
        self._parsed_bytes += size_bytes
        budget.parsed_bytes += size_bytes
        return True

    def drop_parsed(self) -> None:
        self._budget.give_back(self._tenant, self._parsed_bytes)
        self._budget.parsed_bytes -= self._parsed_bytes
        self._parsed_bytes = 0

    def drop(self) -> None:
        self.drop_parsed()
        self._budget.give_back(self._tenant, self._counted_bytes)
        self._counted_bytes = 0
        self.data = b""
