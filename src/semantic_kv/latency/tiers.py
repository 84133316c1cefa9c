"""Tiers (GPU, CPU, disk or remote): what they hold, and what a hit in a lower one costs the request that has it.

Used by ``tiered`` for the replay, and by callers that have hit blocks by tier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sembase.errors import ContractError
from sembase.latency import Floats, LatencyModel

Counts = npt.NDArray[np.int32]
BYTES_PER_GIB: Final = float(1 << 30)
_MAX_TIERS: Final = 8


@dataclass(frozen=True, slots=True)
class Tier:
    """One level of the hierarchy, nearest first. ``read_gib_per_s`` None: the engine reads it in place, at no cost.

    A request pays ``latency_ms`` once if it reads anything here, and its bytes over the bandwidth.
    """

    name: str
    capacity_blocks: int
    read_gib_per_s: float | None = None
    latency_ms: float = 0.0

    def __post_init__(self) -> None:
        if self.capacity_blocks < 1:
            raise ContractError(
                f"tier '{self.name}' has a capacity of {self.capacity_blocks} blocks; it must be at least 1"
            )
        if self.read_gib_per_s is not None and not (math.isfinite(self.read_gib_per_s) and self.read_gib_per_s > 0.0):
            raise ContractError(
                f"tier '{self.name}' has a bandwidth of {self.read_gib_per_s} GiB/s; it must be greater than 0"
            )
        if not (math.isfinite(self.latency_ms) and self.latency_ms >= 0.0):
            raise ContractError(f"tier '{self.name}' has a latency of {self.latency_ms} ms; it must be 0 or more")

    def read_ms(self, blocks: Counts, block_bytes: int) -> Floats:
        """Per request, for so many blocks read from here."""
        count = np.asarray(blocks, dtype=np.float64)
        transfer = 0.0
        if self.read_gib_per_s is not None:
            transfer = 1000.0 * block_bytes / (self.read_gib_per_s * BYTES_PER_GIB)
        return np.where(count > 0, self.latency_ms + transfer * count, 0.0)


def check_tiers(tiers: Sequence[Tier]) -> None:
    if not 1 <= len(tiers) <= _MAX_TIERS:
        raise ContractError(f"a hierarchy must have 1 to {_MAX_TIERS} tiers, not {len(tiers)}")
    names = [tier.name for tier in tiers]
    if len(set(names)) != len(names):
        raise ContractError(f"two tiers have the same name: {', '.join(names)}")


def load_ms(hit_blocks_by_tier: Counts, tiers: Sequence[Tier], block_bytes: int) -> Floats:
    """What every request pays for its hits, one row per request and one column per tier. Tiers are read in turn."""
    if block_bytes < 1:
        raise ContractError("block_bytes must be at least 1")
    columns = [tier.read_ms(hit_blocks_by_tier[:, level], block_bytes) for level, tier in enumerate(tiers)]
    return np.asarray(np.sum(columns, axis=0), dtype=np.float64)


def cheaper_to_load(
    tier: Tier, block_tokens: int, block_bytes: int, model: LatencyModel, *, context_tokens: int = 0, blocks: int = 1
) -> bool:
    """Whether reading ``blocks`` from the tier is faster than computing them after ``context_tokens`` cached tokens."""
    tokens = np.array([block_tokens * blocks], dtype=np.float64)
    context = np.array([context_tokens], dtype=np.float64)
    nothing = np.zeros(1)
    computed = model.prefill_ms(tokens, context) - model.prefill_ms(nothing, context + tokens)
    read = tier.read_ms(np.array([blocks], dtype=np.int32), block_bytes)
    return bool(read[0] + model.ms_per_loaded_block * blocks < computed[0])
