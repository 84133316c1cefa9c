"""Start-up self-test: this worker must read, rotate and recompute KV correctly on this engine, or it is disabled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from semblend.contract import TokenRange
from semblend.kv.rope import Rotation, rotate_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semblend.integration.vllm.attention_cache import AttentionCache
    from semblend.integration.vllm.sparse_forward import SparseForward

TOKENS: Final = 24
SHIFTS: Final = (1, 37, 100)
POSITIONS: Final = max(SHIFTS) + TOKENS  # positions the scratch blocks must hold
# Two roundings to the cache's precision, relative to the size of K; a wrong angle gives errors of the order of 1.
TOLERANCE: Final = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}


class SelfTestError(Exception):
    """KV computed by the engine and KV we would have loaded differ."""


def check_rotation(
    cache: AttentionCache, sparse_forward: SparseForward, rotation: Rotation, scratch_blocks: list[int], vocabulary: int
) -> None:
    """The first layer's K depends on token and position alone: move it, recompute it, compare."""
    block_ids = torch.tensor(scratch_blocks, dtype=torch.int64)
    token_ids = np.linspace(1, vocabulary - 1, TOKENS).astype(np.int64)
    sparse_forward.compute(block_ids, [TokenRange(0, TOKENS)], token_ids)
    at_start, _ = cache.read(0, block_ids)
    at_start = at_start[:TOKENS].clone()
    worst = _reversed_error(cache, sparse_forward, rotation, block_ids, token_ids, at_start)
    for shift in SHIFTS:
        sparse_forward.compute(block_ids, [TokenRange(shift, shift + TOKENS)], token_ids)
        recomputed, _ = cache.read(0, block_ids)
        moved = rotate_keys(at_start, shift, rotation)
        worst = max(worst, _relative_error(moved, recomputed[shift : shift + TOKENS]))
    limit = TOLERANCE.get(cache.dtype)
    if limit is None or not worst <= limit:
        raise SelfTestError(f"K rotated by us differs from K computed by the engine by {worst:.4f} (limit {limit})")


def _reversed_error(
    cache: AttentionCache,
    sparse_forward: SparseForward,
    rotation: Rotation,
    block_ids: torch.Tensor,
    token_ids: NDArray[np.int64],
    at_start: torch.Tensor,
) -> float:
    """The same tokens backwards: shows that each position got its own token, which a plain repeat would not."""
    sparse_forward.compute(block_ids, [TokenRange(0, TOKENS)], token_ids[::-1].copy())
    backwards, _ = cache.read(0, block_ids)
    moved = [rotate_keys(at_start[TOKENS - 1 - i : TOKENS - i], 2 * i - TOKENS + 1, rotation) for i in range(TOKENS)]
    return _relative_error(torch.cat(moved), backwards[:TOKENS])


def _relative_error(moved: torch.Tensor, recomputed: torch.Tensor) -> float:
    return float((moved.float() - recomputed.float()).norm() / recomputed.float().norm())
