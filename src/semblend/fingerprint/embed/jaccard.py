"""An embedder without a model: the cosine of two windows is an unbiased estimate of their shingles' Jaccard similarity.

One bit of a min-hash per dimension, as +1 or -1. Two windows agree in a dimension's min-hash with probability J and
otherwise agree in its bit half of the time, so the expected inner product is J + (1 - J) * 0. The standard deviation is
below 1/sqrt(dimensions), 0.05 for 384. Feature hashing would be biased for windows of different sizes.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray

from semblend.fingerprint.embed.windows import MAX_WINDOWS, content_windows

# Scripts written without spaces count each character as a word; otherwise a whole paragraph would be one shingle.
_UNSPACED: Final = "぀-ヿ㐀-鿿가-힯"
_WORD: Final = re.compile(f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+")
_SHINGLE_BASE: Final = np.uint64(0x9E3779B97F4A7C15)


class JaccardEmbedder:
    """Windows are cut by content (about ``2 * radius`` words), so a moved passage gives the same windows again."""

    name = "jaccard"

    def __init__(
        self, dimensions: int = 384, *, shingle_words: int = 3, radius: int = 64, max_windows: int = MAX_WINDOWS
    ) -> None:
        self.dimensions = dimensions
        self._shingle_words = shingle_words
        self._radius = radius
        self._max_windows = max_windows
        # Fixed, so that vectors of two processes can be compared.
        self._seeds = _mixed(np.arange(1, dimensions + 1, dtype=np.uint64))[:, None]

    def embed(self, text: str) -> NDArray[np.float32]:
        shingles = self.shingles(text)
        spans = content_windows(shingles, self._radius, self._max_windows)
        rows = np.empty((len(spans), self.dimensions), dtype=np.float32)
        for row, (start, end) in zip(rows, spans.tolist(), strict=True):
            smallest = _mixed(np.unique(shingles[start:end]) ^ self._seeds).min(axis=1)
            row[:] = 2.0 * (_mixed(smallest) & np.uint64(1)) - 1.0
        return rows / np.float32(np.sqrt(self.dimensions))

    def shingles(self, text: str) -> NDArray[np.uint64]:
        """A hash for each group of consecutive words, in order; one for a text of fewer words."""
        words = _WORD.findall(text.lower())
        if not words:
            return np.empty(0, dtype=np.uint64)
        known = {word: int.from_bytes(blake2b(word.encode(), digest_size=8).digest()) for word in set(words)}
        hashes = np.array([known[word] for word in words], dtype=np.uint64)
        width = min(self._shingle_words, len(words))
        grouped = np.zeros(len(words) - width + 1, dtype=np.uint64)
        for offset in range(width):
            grouped = _mixed(grouped * _SHINGLE_BASE + hashes[offset : offset + len(grouped)])
        return grouped


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every input bit moves every output bit. Wrap-around is intended."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
