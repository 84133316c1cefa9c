"""The result of one trace through one cache: totals, per request, per label, over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

CacheModel = Literal["prefix_tree", "block_set"]
Unit = Literal["blocks", "tokens"]
CACHE_MODELS: Final[tuple[CacheModel, ...]] = ("prefix_tree", "block_set")
UNITS: Final[tuple[Unit, ...]] = ("blocks", "tokens")


@dataclass(frozen=True, slots=True)
class BlendTotals:
    """Reuse beyond the prefix and its repair. ``repair_ms`` is modelled engine time, unfinished blocks included."""

    requests: int = 0
    reused_tokens: int = 0
    repaired_tokens: int = 0
    published_blocks: int = 0
    repair_ms: float = 0.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Replay:
    """Counts, so that every rate can name its numerator and denominator. Labels are indexes into `LABELS`."""

    trace: str
    model: CacheModel
    admit: str
    evict: str
    capacity: int
    unit: Unit
    references: int
    hit_blocks: int
    prompt_tokens: int
    hit_tokens: int
    admitted: int
    refused: int  # missed blocks that were not admitted, for any reason
    evicted: int
    per_request_hit_blocks: NDArray[np.int32]
    per_request_hit_tokens: NDArray[np.int32]
    references_by_label: NDArray[np.int64]
    hits_by_label: NDArray[np.int64]
    evictions_by_label: NDArray[np.int64]
    used_over_time: NDArray[np.int64]  # rows (requests served, capacity in use), at most 512
    weights_over_time: NDArray[np.float64] | None  # one row a row of `used_over_time`, one column a label
    per_request_reused_tokens: NDArray[np.int32]  # beyond the exact prefix, from donors
    blended: BlendTotals
    seconds: float  # serving the requests only, without loading and compiling

    @property
    def hit_ratio(self) -> float | None:
        """Hit blocks over all block references; None for an empty trace."""
        return self.hit_blocks / self.references if self.references else None

    @property
    def token_hit_ratio(self) -> float | None:
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else None
