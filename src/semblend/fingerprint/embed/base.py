"""What an embedder is: text in, one normalised row per window out. Off the hot path; called by the semantic finder."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Embedder(Protocol):
    """Turns a whole text into window vectors whose inner product is their cosine similarity.

    Windows cover the text from its first to its last word, so text before a document cannot hide it. A text
    with more windows than the embedder's ``max_windows`` is sampled by windows spread evenly over it, first and last
    included. A text without content gives zero rows.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def embed(self, text: str) -> NDArray[np.float32]: ...


def unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows scaled to length one. A row of zeros has no direction and stays as it is."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), dtype=np.float32)
