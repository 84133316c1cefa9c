"""Random draws that are the same on every Python version and machine, because only ``random()`` is used.

``shuffle`` and ``sample`` of the standard library may change between versions; a manifest's bytes must not.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """A stream of draws named by its parts: the seed, the item, the purpose."""

    def __init__(self, *parts: str | int) -> None:
        name = "\x1f".join(str(part) for part in parts)
        self._random = random.Random(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))

    def uniform(self) -> float:
        return self._random.random()

    def below(self, bound: int) -> int:
        return int(self._random.random() * bound)

    def choose(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Fisher-Yates."""
        result = list(items)
        for last in range(len(result) - 1, 0, -1):
            other = self.below(last + 1)
            result[last], result[other] = result[other], result[last]
        return result

    def deranged(self, items: Sequence[T]) -> list[T]:
        """A shuffle that differs from the given order, if possible: the original order would measure nothing."""
        result = self.shuffled(items)
        return [*result[1:], result[0]] if len(result) > 1 and result == list(items) else result
