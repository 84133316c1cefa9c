"""Matches without a *Realized* line yet, by token count. A count shared by two requests is assigned to neither."""

from __future__ import annotations

from typing import Final

MAX_OPEN: Final = 10_000


class OpenMatches:
    def __init__(self) -> None:
        self._tokens: dict[str, int] = {}  # oldest first
        self._by_tokens: dict[int, set[str]] = {}

    def add(self, request_id: str | None, tokens: int, line: int) -> None:
        """A new match of a request replaces its earlier one. A match without request id only makes others ambiguous."""
        name = f"\n{line}" if request_id is None else request_id
        self._drop(name)
        self._tokens[name] = tokens
        self._by_tokens.setdefault(tokens, set()).add(name)
        if len(self._tokens) > MAX_OPEN:
            self._drop(next(iter(self._tokens)))

    def take(self, tokens: int) -> str | None:
        names = self._by_tokens.get(tokens, set())
        if len(names) != 1:
            return None
        name = next(iter(names))
        self._drop(name)
        return None if name.startswith("\n") else name

    def _drop(self, name: str) -> None:
        tokens = self._tokens.pop(name, None)
        if tokens is not None:
            names = self._by_tokens[tokens]
            names.discard(name)
            if not names:
                del self._by_tokens[tokens]
