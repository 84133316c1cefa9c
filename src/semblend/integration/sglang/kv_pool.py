"""The engine's KV pool as the adapter sees it: K and V of each layer, or MLA's one entry per token, which is K.

An entry of MLA is a latent vector and a rotated part after it. The engine writes it from several places, whole or in
two parts, and attends in two ways; what all of them share is the pool, so entries are observed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


def keys_of(pool: Any) -> Sequence[torch.Tensor]:
    """One tensor per layer, ``[slot, head, dim]``."""
    keys: Sequence[torch.Tensor] = pool.kv_buffer if latent_dim_of(pool) else pool.k_buffer
    return keys


def values_of(pool: Any) -> Sequence[torch.Tensor]:
    """The same of V; nothing where K holds everything."""
    values: Sequence[torch.Tensor] = () if latent_dim_of(pool) else pool.v_buffer
    return values


def latent_dim_of(pool: Any) -> int:
    """Size of MLA's latent vector, which is not rotated; 0 where K and V are kept."""
    return int(getattr(pool, "kv_lora_rank", 0) or 0)


def read_slots(pool: Any, layer: int, slots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of some slots. V has no width where K holds everything."""
    keys, values = keys_of(pool)[layer][slots], values_of(pool)
    return keys, values[layer][slots] if values else keys[..., :0]


def attention_layers(model: Any, pool: Any) -> Sequence[Any]:
    """The model's attention layers in order, or none unless there is one for each layer of the pool.

    MLA has two modules per layer; the one that attends to the pool's entries has one head of their size.
    """
    keys = keys_of(pool)
    width = keys[0].shape[-1] if latent_dim_of(pool) else None
    found = {
        module.layer_id: module
        for module in model.modules()
        if hasattr(module, "layer_id")
        and hasattr(module, "scaling")
        and hasattr(module, "tp_k_head_num")
        and (width is None or (module.tp_k_head_num, module.qk_head_dim) == (1, width))
    }
    return [found[index] for index in range(len(keys))] if sorted(found) == list(range(len(keys))) else []


class LatentLayer:
    """A layer of MLA. Inside ``reporting_entries``, ``forward`` gets each entry before it is written to the pool."""

    def __init__(self, layer: Any, latent_dim: int) -> None:
        self.scaling = layer.scaling
        self.kv_lora_rank = latent_dim

    def forward(self, query: None, latent: torch.Tensor, rotated: torch.Tensor) -> None:
        """Replaced by an observer."""


def observable(layers: Sequence[Any], pool: Any) -> Sequence[Any]:
    """The layers whose ``forward`` is called with what they compute."""
    latent = latent_dim_of(pool)
    return [LatentLayer(layer, latent) for layer in layers] if latent else layers


@contextmanager
def reporting_entries(pool: Any, layers: Sequence[Any]) -> Iterator[None]:
    """While this lasts, the pool reports MLA's entries to the ``observable`` layers. Other pools stay as they are."""
    latent = latent_dim_of(pool)
    if not latent:
        yield
        return

    def whole(
        original: Callable[..., Any], layer: Any, loc: Any, entry: torch.Tensor, *given: Any, **named: Any
    ) -> Any:
        layers[layer.layer_id].forward(None, entry[..., :latent], entry[..., latent:])
        return original(layer, loc, entry, *given, **named)

    def parts(
        original: Callable[..., Any],
        layer: Any,
        loc: Any,
        own: torch.Tensor,
        rotated: torch.Tensor,
        *given: Any,
        **named: Any,
    ) -> Any:
        layers[layer.layer_id].forward(None, own, rotated)
        return original(layer, loc, own, rotated, *given, **named)

    with _replaced(pool, "set_kv_buffer", whole), _replaced(pool, "set_mla_kv_buffer", parts):
        yield


@contextmanager
def _replaced(pool: Any, name: str, around: Callable[..., Any]) -> Iterator[None]:
    original = getattr(pool, name)

    def calling(*given: Any, **named: Any) -> Any:
        return around(original, *given, **named)

    vars(pool)[name] = calling
    try:
        yield
    finally:
        del vars(pool)[name]
