"""Which prefixes are hot, and over how many replicas each may be spread, up to a stated limit.

Counts decay by half in ``half_life`` requests; the least recently used prefix is evicted first. About 130
bytes per prefix.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from sembase.errors import ConfigurationError

_RESCALE_AT: Final = 1e100


class HotPrefixes:
    def __init__(self, max_prefixes: int, max_copies: int, half_life: int = 4_096) -> None:
        if min(max_prefixes, max_copies, half_life) < 1:
            raise ConfigurationError("max_prefixes, max_copies and half_life must be at least 1")
        self._max_prefixes = max_prefixes
        self._max_copies = max_copies
        self._growth = 2.0 ** (1.0 / half_life)
        self._unit = 1.0  # weight of a request now: growing weights make old counts decay without touching them
        self._total = 0.0
        self._counts: OrderedDict[int, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def note(self, key: int) -> None:
        self._counts[key] = self._counts.pop(key, 0.0) + self._unit
        if len(self._counts) > self._max_prefixes:
            self._counts.popitem(last=False)

    def advance(self) -> None:
        """Call once per request, regardless of how many of its prefixes are noted."""
        self._unit *= self._growth
        self._total += self._unit
        if self._unit > _RESCALE_AT:
            self._total /= self._unit
            for key in self._counts:
                self._counts[key] /= self._unit
            self._unit = 1.0

    def request_fraction(self, key: int) -> float:
        """Fraction of the recent requests that have this prefix."""
        return self._counts.get(key, 0.0) / self._total if self._total else 0.0

    def copies(self, key: int, replicas: int) -> int:
        """One more copy per half of a replica's fair share of the requests, at most ``max_copies``."""
        return max(1, min(1 + int(2.0 * replicas * self.request_fraction(key)), self._max_copies, replicas))
