"""Donor tokens by number, the same in every process and every numpy: Zipf noise, or rows of a file of real text.

A rival imports this under its own interpreter, so it needs only numpy and does not use numpy's random generators.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.uint32]

VOCABULARY = 49_152
DONOR_TOKENS = 2_048
HEAD_TOKENS = 600
_TABLE_BITS = 20
_STREAM_DONORS, _STREAM_FRESH, _STREAM_HEAD = 1, 2, 3


class TokenSource(Protocol):
    """Where donors and unseen text come from."""

    @property
    def head(self) -> Tokens:
        """The system prompt every donor begins with; empty when there is none."""

    def donors(self, start: int, stop: int) -> Tokens:
        """Rows ``start <= i < stop``, each ``DONOR_TOKENS`` long and beginning with the head."""

    def fresh(self, key: int, count: int) -> Tokens:
        """Tokens that are in no donor; another key gives others."""


@dataclass(frozen=True)
class ZipfSource:
    """Independent Zipf(1.0) tokens. ``head_tokens`` > 0 puts the same system prompt in front of every donor."""

    seed: int = 7
    head_tokens: int = 0

    @property
    def head(self) -> Tokens:
        return _zipf(self.seed, _STREAM_HEAD, 0, self.head_tokens)

    def donors(self, start: int, stop: int) -> Tokens:
        body = DONOR_TOKENS - self.head_tokens
        rows = _zipf(self.seed, _STREAM_DONORS, start * body, (stop - start) * body).reshape(stop - start, body)
        if not self.head_tokens:
            return rows
        return np.hstack([np.broadcast_to(self.head, (stop - start, self.head_tokens)), rows])

    def fresh(self, key: int, count: int) -> Tokens:
        return _zipf(self.seed, _STREAM_FRESH, key << 20, count)


class FileSource:
    """Rows of real text after a real system prompt, and unseen text of documents that are in no row."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as stored:
            self._head: Tokens = stored["head"]
            self._rows: Tokens = stored["rows"]
            self._unseen: Tokens = stored["unseen"]

    @property
    def head(self) -> Tokens:
        return self._head

    @property
    def size(self) -> int:
        return int(self._rows.shape[0])

    def donors(self, start: int, stop: int) -> Tokens:
        rows = self._rows[start:stop, : DONOR_TOKENS - self.head.size]
        return np.hstack([np.broadcast_to(self.head, (rows.shape[0], self.head.size)), rows])

    def fresh(self, key: int, count: int) -> Tokens:
        offset = (key * 7_919) % self._unseen.size
        return np.take(self._unseen, np.arange(offset, offset + count), mode="wrap")


def open_source(description: dict[str, Any]) -> TokenSource:
    """``{"kind": "zipf", "seed": 7, "head_tokens": 0}`` or ``{"kind": "file", "path": ...}``."""
    if description["kind"] == "file":
        return FileSource(Path(description["path"]))
    return ZipfSource(int(description["seed"]), int(description["head_tokens"]))


def _zipf(seed: int, stream: int, offset: int, count: int) -> Tokens:
    """SplitMix64 of a counter, its top bits through a quantised inverse distribution."""
    with np.errstate(over="ignore"):
        state = np.arange(offset, offset + count, dtype=np.uint64)
        state += np.uint64((seed << 48) ^ (stream << 44))
        state += np.uint64(1)
        state *= np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(30)
        state *= np.uint64(0xBF58476D1CE4E5B9)
        state ^= state >> np.uint64(27)
        state *= np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return _TABLE[(state >> np.uint64(64 - _TABLE_BITS)).astype(np.int64)]


def _inverse_table() -> Tokens:
    """Which token a quantile means. Ids are scattered so that frequent tokens are not the small numbers."""
    weights = np.cumsum(1.0 / np.arange(1, VOCABULARY + 1))
    quantiles = (np.arange(1 << _TABLE_BITS) + 0.5) / (1 << _TABLE_BITS) * weights[-1]
    ranks = np.searchsorted(weights, quantiles)
    scattered = (ranks.astype(np.uint64) * np.uint64(25_717) + np.uint64(11)) % np.uint64(VOCABULARY)
    table: Tokens = scattered.astype(np.uint32)
    return table


_TABLE = _inverse_table()
