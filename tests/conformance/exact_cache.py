"""An engine's exact prefix cache for drivers without an engine: published prefixes, in whole blocks, by tenant."""

from __future__ import annotations

from collections.abc import Sequence

BLOCK = 16


class ExactCache:
    def __init__(self) -> None:
        self._held: dict[str | None, set[tuple[int, ...]]] = {}

    def publish(self, tokens: Sequence[int], salt: str | None) -> None:
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            self._held.setdefault(salt, set()).add(tuple(tokens[:end]))

    def match(self, tokens: Sequence[int], salt: str | None) -> int:
        held = self._held.get(salt, set())
        end = 0
        while end + BLOCK < len(tokens) and tuple(tokens[: end + BLOCK]) in held:
            end += BLOCK
        return end

    def clear(self) -> None:
        self._held.clear()
