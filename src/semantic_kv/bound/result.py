"""A ceiling in the same counts as a replay, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

# optimum: nothing does better and a cache under all rules (prefix, leaf-only, pins) can do as well.
# bound: nothing does better, perhaps nothing as well. attained: what one clairvoyant rule did.
BoundKind = Literal["optimum", "bound", "attained"]
_FROM_STRONG_TO_WEAK: Final[tuple[BoundKind, ...]] = get_args(BoundKind)


def weakest(kinds: Iterable[BoundKind]) -> BoundKind:
    """How far a sum of several ceilings can be trusted: as far as the weakest of them."""
    return max(kinds, key=_FROM_STRONG_TO_WEAK.index)


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    name: str
    standing: BoundKind
    references: int
    hit_blocks: int | None  # None where only tokens are bounded
    prompt_tokens: int
    hit_tokens: int
    per_request_hit_blocks: NDArray[np.int32] | None

    @property
    def hit_ratio(self) -> float | None:
        return None if self.hit_blocks is None or not self.references else self.hit_blocks / self.references

    @property
    def token_hit_ratio(self) -> float | None:
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else None
