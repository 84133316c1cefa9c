"""KV without a model: each cached position holds a number that stands for its token and everything it has seen.

Two positions hold the same number only if they were computed from the same tokens in the same context, so numbers tell
exact KV from approximate KV, and the right token from a wrong one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.contract import TokenRange

BYTES_PER_TOKEN = 1024
WIDTH = BYTES_PER_TOKEN // (2 * 8)  # one layer, one head, int64
_MASK = (1 << 62) - 1


def trace(token: int, seen: int) -> int:
    """The KV of a token behind KV that sums up to ``seen``."""
    mixed = (token + 1) * 0x9E3779B97F4A7C15 ^ (seen * 0xC2B2AE3D27D4EB4F + 0x165667B19E3779F9)
    mixed ^= mixed >> 29
    return (mixed * 0xBF58476D1CE4E5B9) & _MASK | 1


def exact_traces(tokens: Sequence[int]) -> list[int]:
    """What an engine without any reuse would hold."""
    traces: list[int] = []
    seen = 0
    for token in tokens:
        traces.append(trace(int(token), seen))
        seen = (seen + traces[-1]) & _MASK
    return traces


class TraceCache:
    """Stands in for ``AttentionCache``: one layer whose V carries the traces."""

    eight_bits = None

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.names: tuple[str, ...] = ("layer",)
        self.layers = (object(),)  # nothing of it is read
        self.block_tokens = block_tokens
        self.device = torch.device("cpu")
        self.values = np.zeros(blocks * block_tokens, np.int64)
        self.token_of: dict[int, int] = {0: -1}
        self.fail_reads = False

    def read(self, layer: int, block_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.fail_reads:
            raise OSError("injected")
        rows = self.values.reshape(-1, self.block_tokens)[block_ids.numpy()].reshape(-1)
        values = torch.zeros((len(rows), 1, WIDTH), dtype=torch.int64)
        values[:, 0, 0] = torch.from_numpy(rows)
        return torch.zeros_like(values), values

    def write(self, layer: int, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
        self.values[slots.numpy()] = values[:, 0, 0].numpy()

    def slots(self, block_ids: torch.Tensor, start: int, end: int) -> torch.Tensor:
        positions = torch.arange(start, end)
        return block_ids[positions // self.block_tokens] * self.block_tokens + positions % self.block_tokens

    def row(self, block_ids: Sequence[int], tokens: int) -> NDArray[np.int64]:
        return self.values.reshape(-1, self.block_tokens)[list(block_ids)].reshape(-1)[:tokens]

    def forward(self, block_ids: Sequence[int], start: int, tokens: Sequence[int]) -> None:
        """What the engine's model does: every position sees all KV before it, whatever that is."""
        end = start + len(tokens)
        slots = self.slots(torch.tensor(list(block_ids)), 0, end).numpy()
        seen = int(sum(int(value) for value in self.values[slots[:start]]) & _MASK)
        for slot, token in zip(slots[start:], tokens, strict=True):
            own = trace(int(token), seen)
            self.values[slot] = own
            self.token_of[own] = int(token)
            seen = (seen + own) & _MASK


class TraceForward:
    """Stands in for ``SparseForward``."""

    def __init__(self, cache: TraceCache) -> None:
        self._cache = cache
        self.fails = False

    def compute(self, block_ids: torch.Tensor, ranges: Sequence[TokenRange], token_ids: Any) -> None:
        if self.fails:
            raise OSError("injected")
        taken = 0
        for part in ranges:
            self._cache.forward(block_ids.tolist(), part.start, token_ids[taken : taken + len(part)].tolist())
            taken += len(part)
        assert taken == len(token_ids)
