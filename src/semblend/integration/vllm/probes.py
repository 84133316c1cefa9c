"""What a worker can find out about loaded KV: what the end of the prompt attends to, how far a layer's K and V are off.

Both listen to the engine's own attention layers during a sparse forward; no model's code is known here. Results are
indexed by prompt position: 4 bytes x layers x heads per position for attention, 4 bytes for deviation.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.contract import TokenRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from semblend.integration.vllm.attention_cache import AttentionCache
    from semblend.integration.vllm.sparse_forward import SparseForward

QUERIES: Final = 24
PROBE_LAYER: Final = 1


class _EnoughSeenError(Exception):
    """Ends a forward whose later layers nobody needs."""


@contextmanager
def listening(layers: Sequence[Any], hear: Callable[[int, Any, Any, Any], None]) -> Iterator[None]:
    """``hear(layer, query, key, value)`` before each attention layer attends or writes; K and Q are rotated by then."""
    handles = []
    for index, layer in enumerate(layers):

        def hook(_module: Any, arguments: tuple[Any, ...], at: int = index) -> None:
            hear(at, *arguments[:3])

        handles.append(layer.register_forward_pre_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def question_attention(
    cache: AttentionCache,
    sparse_forward: SparseForward,
    block_ids: torch.Tensor,
    ranges: Sequence[TokenRange],
    token_ids: NDArray[np.int64],
) -> NDArray[np.float32]:
    """Compute ``ranges``, the last of which ends with the question, and see what its last queries attend to.

    Gives [layers, heads, positions up to the end of the last range], mean over the queries.
    """
    wanted = min(QUERIES, len(ranges[-1]))
    asking = np.arange(ranges[-1].end - wanted, ranges[-1].end)
    return attention_of(cache, sparse_forward, block_ids, ranges, token_ids, asking, np.full(wanted, 1 / wanted))


def attention_of(
    cache: AttentionCache,
    sparse_forward: SparseForward,
    block_ids: torch.Tensor,
    ranges: Sequence[TokenRange],
    token_ids: NDArray[np.int64],
    asking: NDArray[np.int64],
    weights: NDArray[np.float64],
) -> NDArray[np.float32]:
    """Compute ``ranges`` and see what the positions ``asking`` among them attend to, as a weighted sum."""
    end = ranges[-1].end
    computed = np.concatenate([np.arange(part.start, part.end) for part in ranges])
    if len(computed) > sparse_forward.max_tokens:
        raise ValueError(f"{len(computed)} positions do not fit into one forward of {sparse_forward.max_tokens}")
    rows = torch.from_numpy(np.searchsorted(computed, asking))
    queries: dict[int, torch.Tensor] = {}

    def hear(layer: int, query: torch.Tensor, _key: torch.Tensor, _value: torch.Tensor) -> None:
        queries[layer] = query[rows]

    with listening(cache.layers, hear):
        sparse_forward.compute(block_ids, ranges, token_ids)
    later = torch.arange(end)[None, :] > torch.from_numpy(asking)[:, None]
    shares = torch.from_numpy(weights).float()
    seen = []
    for index, layer in enumerate(cache.layers):
        keys = cache.read(index, block_ids)[0][:end].float()
        seen.append(weighted_attention(queries[index].float(), keys, float(layer.impl.scale), later, shares))
    attention: NDArray[np.float32] = torch.stack(seen).numpy()
    return attention


def weighted_attention(
    queries: torch.Tensor, keys: torch.Tensor, scale: float, later: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Attention of queries [q, heads x dim] over keys [positions, KV heads, dim], summed by weight: [heads, positions].

    ``later`` [q, positions] marks what a query may not see.
    """
    heads, dim = keys.shape[1], keys.shape[2]
    grouped = queries.view(queries.shape[0], heads, -1, dim).permute(1, 2, 0, 3)  # [KV heads, group, q, dim]
    group, count = grouped.shape[1], grouped.shape[2]
    scores = torch.bmm(grouped.reshape(heads, group * count, dim), keys.permute(1, 2, 0)) * scale
    scores = scores.view(heads, group, count, -1).masked_fill(later, float("-inf"))
    return torch.einsum("hgqt,q->hgt", scores.softmax(dim=-1), weights).reshape(heads * group, -1)


def first_layer(
    cache: AttentionCache,
    sparse_forward: SparseForward,
    block_ids: torch.Tensor,
    ranges: Sequence[TokenRange],
    token_ids: NDArray[np.int64],
) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V that the model has for ``ranges`` in its first layer. It ends before anything is attended or written."""
    true: list[tuple[torch.Tensor, torch.Tensor]] = []

    def hear(_at: int, _query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        true.append((key.clone(), value.clone()))
        raise _EnoughSeenError

    with listening(cache.layers[:1], hear), suppress(_EnoughSeenError):
        sparse_forward.compute(block_ids, ranges, token_ids)
    return true[0]


def layer_deviation(
    cache: AttentionCache,
    sparse_forward: SparseForward,
    block_ids: torch.Tensor,
    claim: TokenRange,
    token_ids: NDArray[np.int64],
    layer: int = PROBE_LAYER,
) -> NDArray[np.float32]:
    """Compute the claim up to ``layer`` and compare its K and V there with the loaded ones, relative to their size.

    The layers before it keep what was computed, which is exact.
    """
    true: list[tuple[torch.Tensor, torch.Tensor]] = []

    def hear(at: int, _query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        if at == layer:
            true.append((key.clone(), value.clone()))
            raise _EnoughSeenError

    with listening(cache.layers, hear):
        for start in range(claim.start, claim.end, sparse_forward.max_tokens):
            part = TokenRange(start, min(claim.end, start + sparse_forward.max_tokens))
            ids = token_ids[part.start - claim.start : part.end - claim.start]
            try:
                sparse_forward.compute(block_ids, [part], ids)
            except _EnoughSeenError:
                continue
    keys, values = cache.read(layer, block_ids)
    off = np.zeros(claim.end, np.float32)
    total = torch.zeros(len(claim))
    for loaded, computed in ((keys, [k for k, _ in true]), (values, [v for _, v in true])):
        expected = torch.cat(computed).float().view(len(claim), -1)
        found = loaded[claim.start : claim.end].float().reshape(len(claim), -1)
        total += (found - expected).square().sum(dim=1) / expected.square().sum(dim=1).mean()
    off[claim.start :] = total.sqrt().numpy()
    return off
