"""Which prefixes are hot, and over how many replicas each may be spread: never more than a stated number.

Counts fade by half in ``half_life`` requests; the prefix unused for longest leaves first. About 130 bytes per prefix.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from sembase.errors import ConfigurationError

_RESCALE_AT: Final = 1e100


class HotPrefixes:
    def __init__(self, most_prefixes: int, most_copies: int, half_life: int = 4_096) -> None:
        if min(most_prefixes, most_copies, half_life) < 1:
            raise ConfigurationError("hot prefixes need room for at least one prefix, one copy and one request")
        self._most_prefixes = most_prefixes
        self._most_copies = most_copies
        self._growth = 2.0 ** (1.0 / half_life)
        self._unit = 1.0  # what a request counts now: growing units make old ones fade without touching them
        self._total = 0.0
        self._counts: OrderedDict[int, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def note(self, key: int) -> None:
        self._counts[key] = self._counts.pop(key, 0.0) + self._unit
        if len(self._counts) > self._most_prefixes:
            self._counts.popitem(last=False)

    def advance(self) -> None:
        """One more request, however many prefixes of it are noted."""
        self._unit *= self._growth
        self._total += self._unit
        if self._unit > _RESCALE_AT:
            self._total /= self._unit
            for key in self._counts:
                self._counts[key] /= self._unit
            self._unit = 1.0

    def share(self, key: int) -> float:
        """Share of the recent requests that carry this prefix."""
        return self._counts.get(key, 0.0) / self._total if self._total else 0.0

    def copies(self, key: int, replicas: int) -> int:
        """One copy per half of a replica's fair share of the requests, at most ``most_copies``."""
        return max(1, min(1 + int(2.0 * replicas * self.share(key)), self._most_copies, replicas))
