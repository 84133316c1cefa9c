"""Probes of KV: what the end of the prompt attends to, and what the first layer computes.

Both observe the engine's attention layers during a forward pass, without model-specific code. Attention is indexed by
prompt position: 4 bytes x layers x heads per position.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from semblend.contract import TokenRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from semblend.integration.core.open_request import OpenRequest

QUERIES: Final = 24
_UNOBSERVED: Final = "the engine does not call its attention layers as modules with the positions of the batch"


class UnobservedError(Exception):
    """The engine computes in a way that cannot be observed."""


class _EnoughSeenError(Exception):
    """Ends a forward pass whose later layers are not needed."""


@contextmanager
def observing(layers: Sequence[Any], observe: Callable[[int, Any, Any, Any], None]) -> Iterator[None]:
    """Call ``observe(layer, query, key, value)`` before each attention layer attends or writes; K and Q are rotated.

    Not by hooks: vLLM's Transformers backend calls ``forward`` itself, which runs none.
    """
    with ExitStack() as replaced:
        for index, layer in enumerate(layers):
            own, is_set = layer.forward, "forward" in vars(layer)

            def forward(*arguments: Any, at: int = index, own: Callable[..., Any] = own, **named: Any) -> Any:
                observe(at, *arguments[:3])
                return own(*arguments, **named)

            layer.forward = forward
            replaced.callback(setattr, layer, "forward", own) if is_set else replaced.callback(
                delattr, layer, "forward"
            )
        yield


def question_attention(request: OpenRequest, ranges: Sequence[TokenRange]) -> NDArray[np.float32]:
    """Compute ``ranges``, the last of which ends with the question, and measure what its last queries attend to.

    Gives [far layers, heads, positions up to the end of the last range], mean over the queries.
    """
    wanted = min(QUERIES, len(ranges[-1]))
    asking = np.arange(ranges[-1].end - wanted, ranges[-1].end)
    return attention_of(request, ranges, asking, np.full(wanted, 1 / wanted))


def attention_of(
    request: OpenRequest, ranges: Sequence[TokenRange], asking: NDArray[np.int64], weights: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Compute ``ranges`` and measure what the positions ``asking`` among them attend to, as a weighted sum.

    In the ``far_layers``. The heads of all ranks, in their order: every rank sees the same.
    """
    end = ranges[-1].end
    queries = queries_of(request, ranges, asking)
    hidden = unseen(asking, end)
    shares = torch.from_numpy(weights).float()
    seen = []
    for index in far_layers(request):
        keys = request.read(index, TokenRange(0, end))[0].float().cpu()
        mask = hidden(request.reach(index))
        seen.append(weighted_attention(queries[index], keys, request.scale(index), mask, shares))
    attention: NDArray[np.float32] = torch.cat(list(request.ranks.gather(torch.stack(seen))), dim=1).numpy()
    return attention


def far_layers(request: OpenRequest) -> list[int]:
    """The layers that tell which of all tokens are read: those without a sliding window, or all if each has one.

    A window's layers, five of six in Gemma 3, share their whole attention among the last tokens. Together with the
    others they would outvote them, and every token that is recomputed would be near the end.
    """
    layers = range(len(request.layers))
    return [layer for layer in layers if request.reach(layer) is None] or list(layers)


def unseen(asking: NDArray[np.int64], end: int) -> Callable[[int | None], torch.Tensor]:
    """By a layer's reach, what queries at the positions ``asking`` do not see: [q, positions], made once per reach."""
    ahead = torch.arange(end)[None, :] - torch.from_numpy(asking)[:, None]

    @cache
    def hidden(reach: int | None) -> torch.Tensor:
        return ahead > 0 if reach is None else (ahead > 0) | (ahead < -reach)

    return hidden


def queries_of(
    request: OpenRequest, ranges: Sequence[TokenRange], asking: NDArray[np.int64]
) -> tuple[torch.Tensor, ...]:
    """Compute ``ranges`` and keep the queries of the positions ``asking`` among them: [q, heads x dim] per layer."""
    computed = np.concatenate([np.arange(part.start, part.end) for part in ranges])
    rows = np.searchsorted(computed, asking)
    queries: list[list[torch.Tensor]] = [[] for _ in request.layers]
    seen_rows = [0] * len(request.layers)  # one call may be several forward passes, each with the next rows

    def observe(layer: int, query: torch.Tensor, _key: torch.Tensor, _value: torch.Tensor) -> None:
        here = rows[(rows >= seen_rows[layer]) & (rows < seen_rows[layer] + len(query))] - seen_rows[layer]
        queries[layer].append(query[torch.from_numpy(here).to(query.device)])
        seen_rows[layer] += len(query)

    with observing(request.layers, observe):
        request.compute(ranges)
    if seen_rows != [len(computed)] * len(request.layers):
        raise UnobservedError(_UNOBSERVED)
    return tuple(torch.cat(parts).float().cpu() for parts in queries)


def weighted_attention(
    queries: torch.Tensor, keys: torch.Tensor, scale: float, hidden: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Attention of queries [q, heads x dim] over keys [positions, KV heads, dim], summed by weight: [heads, positions].

    ``hidden`` [q, positions] marks what a query may not see.
    """
    return torch.einsum("hqt,q->ht", attention_weights(queries, keys, scale, hidden), weights)


def attention_weights(queries: torch.Tensor, keys: torch.Tensor, scale: float, hidden: torch.Tensor) -> torch.Tensor:
    """The same for each query by itself: [heads, q, positions]."""
    heads, dim = keys.shape[1], keys.shape[2]
    grouped = queries.view(queries.shape[0], heads, -1, dim).permute(1, 2, 0, 3)  # [KV heads, group, q, dim]
    group, count = grouped.shape[1], grouped.shape[2]
    scores = torch.bmm(grouped.reshape(heads, group * count, dim), keys.permute(1, 2, 0)) * scale
    scores = scores.view(heads * group, count, -1).masked_fill(hidden, float("-inf"))
    return scores.softmax(dim=-1)


def compared(
    held: tuple[torch.Tensor, torch.Tensor], computed: tuple[torch.Tensor, torch.Tensor]
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """What the cache holds beside what the layer was called with, V first: it tells tokens apart by itself.

    A layer of MLA keeps one entry, which is called K, and is called with its two parts: the latent vector takes the
    place of V, and the rotated part that of K.
    """
    keys, values = held
    if values.numel():
        return {"V": (values, computed[1]), "K": (keys, computed[0])}
    latent = computed[0].flatten(1).shape[1]
    return {"V": (keys[..., :latent], computed[0]), "K": (keys[..., latent:], computed[1])}


def can_ask(layers: Sequence[Any]) -> bool:
    """Whether queries can be compared with what the cache holds. Those of MLA cannot without the layer's weights."""
    return not hasattr(layers[0], "kv_lora_rank")


def first_layer(request: OpenRequest, ranges: Sequence[TokenRange]) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V that the model computes for ``ranges`` in its first layer; it stops before attending or writing."""
    keys: list[torch.Tensor] = []
    values: list[torch.Tensor] = []

    def observe(_at: int, _query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        keys.append(key.clone())
        values.append(value.clone())
        raise _EnoughSeenError

    with observing(request.layers[:1], observe):
        for portion in request.passes(ranges):
            with suppress(_EnoughSeenError):
                request.compute(portion)
    if sum(map(len, keys)) != sum(map(len, ranges)):
        raise UnobservedError(_UNOBSERVED)
    return torch.cat(keys), torch.cat(values)
