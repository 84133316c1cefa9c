"""Which tenants and sessions miss most: the heaviest of any number of names, in bounded memory (space-saving)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_NAMES: Final = 4096


@dataclass(slots=True)
class OwnerCount:
    """``overcount`` is what a name that was dropped earlier may have contributed; 0 if no name was dropped."""

    name: str
    requests: int = 0
    prompt_tokens: int = 0
    prefix_tokens: int = 0
    found_tokens: int = 0
    served_tokens: int = 0
    broken_requests: int = 0
    overcount: int = 0

    @property
    def missed_tokens(self) -> int:
        return self.prompt_tokens - self.prefix_tokens


class Owners:
    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._counts: dict[str, OwnerCount] = {}
        self._max_names = max_names
        self.dropped_names = 0
        self._floor = 0

    def count_of(self, name: str) -> OwnerCount:
        found = self._counts.get(name)
        if found is None:
            if len(self._counts) >= self._max_names:
                self._drop()
            found = self._counts[name] = OwnerCount(name, overcount=self._floor)
        return found

    def heaviest(self, limit: int) -> list[OwnerCount]:
        """By missed tokens."""
        return sorted(self._counts.values(), key=lambda each: (-each.missed_tokens, each.name))[:limit]

    def __len__(self) -> int:
        return len(self._counts) + self.dropped_names

    def _drop(self) -> None:
        """The lighter half."""
        ordered = sorted(self._counts.values(), key=lambda each: -(each.missed_tokens + each.overcount))
        kept, gone = ordered[: self._max_names // 2], ordered[self._max_names // 2 :]
        self._floor = max(self._floor, gone[0].missed_tokens + gone[0].overcount)
        self.dropped_names += len(gone)
        self._counts = {each.name: each for each in kept}
