"""What a tokenizer gives: ids, and the characters each token stands for (to place edits)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Tokenized:
    """``ids[i]`` covers the characters ``starts[i] <= c < ends[i]``."""

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def overlapping(self, start: int, end: int) -> NDArray[np.int64]:
        """Positions of the tokens that hold any of the characters; none for an empty range."""
        return np.flatnonzero((self.starts < end) & (self.ends > start)) if start < end else np.empty(0, np.int64)


class Tokenizer(Protocol):
    def __init__(self, name: str) -> None: ...

    @property
    def name(self) -> str:
        """What the result JSON says: never a machine's path."""

    @property
    def digest(self) -> str | None:
        """The sha256 of the tokenizer's file, if it has one."""

    @property
    def is_model_tokenizer(self) -> bool: ...

    def encode(self, text: str) -> Tokenized: ...
