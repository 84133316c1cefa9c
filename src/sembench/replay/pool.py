"""Earlier traffic of one tenant: its full blocks, block prefixes and windows.

Blocks are keyed by their tokens, not by a digest, so two different blocks never collide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sembench.replay.windows import WindowIndex

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ExactEvidence:
    """Counts of one recipient against the pool. ``prefix_blocks`` is what a prefix cache could serve."""

    total_blocks: int
    hit_blocks: int
    prefix_blocks: int
    any_position_tokens: int


class DonorPool:
    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._blocks: set[bytes] = set()
        self._chains: dict[tuple[int, bytes], int] = {}
        self._windows = WindowIndex()

    def add(self, ids: Ids) -> None:
        parent = 0
        for block in full_blocks(ids, self.block_size):
            self._blocks.add(block)
            # A chain's number identifies the whole prefix up to it, like an engine's chained block hash.
            parent = self._chains.setdefault((parent, block), len(self._chains) + 1)
        self._windows.add(ids)

    def evidence(self, ids: Ids) -> ExactEvidence:
        blocks = full_blocks(ids, self.block_size)
        prefix_blocks = parent = 0
        for block in blocks:
            known = self._chains.get((parent, block))
            if known is None:
                break
            parent = known
            prefix_blocks += 1
        return ExactEvidence(
            total_blocks=len(blocks),
            hit_blocks=sum(block in self._blocks for block in blocks),
            prefix_blocks=prefix_blocks,
            any_position_tokens=int(self._windows.covered(ids).sum()),
        )


def full_blocks(ids: Ids, block_size: int) -> list[bytes]:
    """The tokens of every full block on the prompt's own grid; a partial last block does not count."""
    count = len(ids) // block_size
    return [row.tobytes() for row in np.ascontiguousarray(ids[: count * block_size]).reshape(count, block_size)]
