"""What is measured: one interface for ours and for every rival, each fed in the form it takes natively."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from benchmarks.planner.tokens import Tokens


class FoundRun(NamedTuple):
    """``donor`` is the donor's number, or -1 when the subject cannot name it."""

    donor: int
    donor_start: int
    target_start: int
    length: int


class StoreFullError(Exception):
    """The subject accepts no further donor."""


class Subject(Protocol):
    """Timed: ``register`` and ``lookup``. Everything else is preparation and not timed."""

    def open(self, donor_count: int) -> None:
        """Start with an empty store that may grow to ``donor_count`` donors; compile what is compiled lazily."""

    def native_donor(self, number: int, tokens: Tokens) -> Any: ...

    def register(self, number: int, native: Any) -> None: ...

    def native_prompt(self, tokens: Tokens) -> Any: ...

    def lookup(self, native: Any) -> Any: ...

    def found_runs(self, answer: Any) -> list[FoundRun]: ...

    def accounted_bytes(self) -> int | None: ...
